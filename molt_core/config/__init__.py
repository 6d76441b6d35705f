"""Flags and TOML files to typed options, all errors at once; and the inverse."""
