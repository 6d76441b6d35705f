"""What a group has in common: its size, its mean, and whether its rewards differ at all.

In: a `RewardBatch`. Out: vectors over the R rollouts, float64. Counts rollouts, never tokens or
segments. Does not scale anything; that is where the estimators differ.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from molt_core.api.estimator import FloatVector, IntVector, RewardBatch

EQUAL_WITHIN: Final = 1e-9
"""Rewards are equal when they differ by at most this part of the largest absolute reward among them.

Relative, so that the unit of a reward does not matter. Without it a group of eight times 0.1 would have
a mean that is off by one rounding, and dividing by a deviation of 1e-17 would make a full advantage of it.
"""


def group_sizes(groups: IntVector) -> IntVector:
    """[R] int64, number of rollouts in the group of each rollout."""
    sizes: IntVector = np.bincount(groups)[groups].astype(np.int64)
    return sizes


def group_sums(values: FloatVector, groups: IntVector) -> FloatVector:
    """[R] float64, sum of `values` over the group of each rollout."""
    sums: FloatVector = np.bincount(groups, weights=values).astype(np.float64)
    return sums[groups]


def centred(batch: RewardBatch) -> FloatVector:
    """[R] float64, reward minus the mean of its group; exactly 0 in groups of equal rewards and of one."""
    means = group_sums(batch.rewards, batch.groups) / group_sizes(batch.groups)
    return np.where(groups_are_flat(batch), 0.0, batch.rewards - means)


def groups_are_flat(batch: RewardBatch) -> npt.NDArray[np.bool_]:
    """[R] bool, whether the group of each rollout has equal rewards. A group of one has."""
    num_groups = int(batch.groups.max(initial=-1)) + 1
    lowest, highest, largest = np.full(num_groups, np.inf), np.full(num_groups, -np.inf), np.zeros(num_groups)
    np.minimum.at(lowest, batch.groups, batch.rewards)
    np.maximum.at(highest, batch.groups, batch.rewards)
    np.maximum.at(largest, batch.groups, np.abs(batch.rewards))
    flat: npt.NDArray[np.bool_] = highest - lowest <= EQUAL_WITHIN * largest
    return flat[batch.groups]
