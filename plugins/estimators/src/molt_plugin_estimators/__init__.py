"""Advantage estimators: one file per algorithm, numpy only."""
