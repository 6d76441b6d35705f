"""reasoning-gym for Molt. `spec` is light; `environment` imports reasoning_gym."""
