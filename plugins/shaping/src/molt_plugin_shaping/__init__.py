"""Group filters and reward shaping."""
