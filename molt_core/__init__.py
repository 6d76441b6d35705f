"""Molt: agentic reinforcement learning in which the agent is an ordinary program.

Importing this package loads nothing heavy: no torch, ray, vllm or transformers.
"""

__version__ = "0.1.0"
