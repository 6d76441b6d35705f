"""The asynchronous loop: sample, collect, learn, publish. Knows protocols only."""
