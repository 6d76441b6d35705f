"""Rows of a data set, and tasks in a reproducible order. Knows nothing of models or processes."""
