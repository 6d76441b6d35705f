"""Whitening over all sampled tokens of an optimizer step.

    mean = Σ n_i A_i / Σ n_i        variance = Σ n_i (A_i − mean)² / Σ n_i
    whitened A_i = (A_i − mean) / sqrt(max(variance, 1e-8))

In: A [R], one advantage for each rollout, and n [R], its sampled tokens. Out: [R], float64. Every token
of a rollout carries the same advantage, so weighting by n equals whitening the [tokens] vector.
Population variance, as the statistics are of all tokens that are trained and not of a sample of them.

Source: Hu et al., REINFORCE++ (arXiv 2501.03262), section on advantage normalisation.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from molt_core.api.estimator import FloatVector, IntVector
from molt_plugin_estimators.centring import EQUAL_WITHIN

SMALLEST_VARIANCE: Final = 1e-8


def whiten(advantages: FloatVector, num_tokens: IntVector) -> FloatVector:
    """[R] float64 of mean 0 and variance 1 over tokens; exactly 0 when all advantages are equal."""
    if len(advantages) == 0 or np.ptp(advantages) <= EQUAL_WITHIN * np.abs(advantages).max():
        return np.zeros_like(advantages)
    mean = np.average(advantages, weights=num_tokens)
    variance = np.average((advantages - mean) ** 2, weights=num_tokens)
    whitened: FloatVector = (advantages - mean) / np.sqrt(max(variance, SMALLEST_VARIANCE))
    return whitened
