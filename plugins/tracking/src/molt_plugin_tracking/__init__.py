"""Observers that carry a run's metrics to trackers."""
