"""An agent that asks riddles."""
