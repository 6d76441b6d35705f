"""Single-turn environments with verifiable rewards. No torch, no processes."""
