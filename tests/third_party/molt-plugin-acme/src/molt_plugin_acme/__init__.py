"""One estimator and one environment for Molt."""
