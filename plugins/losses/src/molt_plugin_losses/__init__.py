"""Policy losses: one file per loss, torch."""
