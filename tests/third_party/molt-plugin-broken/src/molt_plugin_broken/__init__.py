"""Broken on purpose: the tests install it to show that it harms nobody who does not choose it."""
