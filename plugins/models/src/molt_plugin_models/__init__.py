"""Packaged models: names for `--model` that become a local model folder without a download."""
