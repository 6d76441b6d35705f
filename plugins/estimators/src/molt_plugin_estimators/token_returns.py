"""Sums backwards over the tokens of each rollout, and whitening over the tokens of all ranks.

In: [M] vectors of rollouts one after the other, with [R + 1] starts. Out: [M] float64. Rollouts never touch one
another. Vectorised over rollouts, so the cost is one numpy operation for each position of the longest.
"""

from __future__ import annotations

import numpy as np

from molt_core.api.estimator import FloatVector, IntVector, SumOverRanks
from molt_plugin_estimators.centring import EQUAL_WITHIN
from molt_plugin_estimators.whitening import SMALLEST_VARIANCE


def discounted_sums(values: FloatVector, starts: IntVector, discount: float) -> FloatVector:
    """[M] S_t = x_t + discount · S_{t+1}, with nothing after the last token of a rollout."""
    sums: FloatVector = values.astype(np.float64)
    lengths = np.diff(starts)
    # rollouts by falling length: those that have a token at position p from the end come first
    order = np.argsort(-lengths, kind="stable")
    ends = starts[1:][order] - 1
    counts = np.searchsorted(-lengths[order], -np.arange(1, lengths.max(initial=0) + 1), side="right")
    for back in range(1, len(counts)):
        at = ends[: counts[back]] - back
        sums[at] += discount * sums[at + 1]
    return sums


def next_values(values: FloatVector, starts: IntVector) -> FloatVector:
    """[M] the value at the next token of the same rollout; 0 after its last, where the episode is over."""
    shifted = np.zeros_like(values)
    shifted[:-1] = values[1:]
    shifted[starts[1:][np.diff(starts) > 0] - 1] = 0.0
    return shifted


def at_the_ends(values: FloatVector, starts: IntVector) -> FloatVector:
    """[M] the sum of each rollout's values at its last token, 0 elsewhere."""
    moved = np.zeros_like(values)
    lasts = starts[1:][np.diff(starts) > 0] - 1
    moved[lasts] = np.add.reduceat(values, starts[:-1][np.diff(starts) > 0]) if len(lasts) else 0.0
    return moved


def whiten_tokens(advantages: FloatVector, sum_over_ranks: SumOverRanks) -> FloatVector:
    """[M] of mean 0 and variance 1 over the tokens of all ranks; exactly 0 where all of them are equal."""
    largest = np.abs(advantages).max(initial=0.0)
    total, count = sum_over_ranks(np.array([advantages.sum(), float(len(advantages))]))
    centred: FloatVector = advantages - total / max(count, 1.0)
    (squares, apart) = sum_over_ranks(
        np.array([(centred**2).sum(), float((np.abs(centred) > EQUAL_WITHIN * largest).sum())])
    )
    if apart == 0:
        return np.zeros_like(advantages)
    whitened: FloatVector = centred / np.sqrt(max(squares / count, SMALLEST_VARIANCE))
    return whitened
