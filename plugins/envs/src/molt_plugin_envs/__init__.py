"""Environments with verifiable rewards, of one turn and of several. No torch."""
