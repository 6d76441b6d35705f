"""Molt engine on vLLM."""
