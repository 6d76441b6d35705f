"""Molt engine on transformers."""
