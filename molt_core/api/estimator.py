"""Slot `estimators`: from the rewards of a step to one advantage per rollout. numpy only.

API 1. The factory is called as `factory(options)`.

    class Centred:
        def __init__(self, options: NoOptions) -> None: ...
        def advantages(self, batch: RewardBatch) -> FloatVector:
            return batch.rewards - batch.rewards.mean()
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from attrs import frozen

FloatVector = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.int64]


@frozen(kw_only=True)
class RewardBatch:
    """All scored rollouts of one optimizer step; those that failed or abstained are not in it."""

    rewards: FloatVector
    """[R] float64, finite."""
    groups: IntVector
    """[R] int64, number of the prompt that the rollout answers, 0 … G-1."""
    num_tokens: IntVector
    """[R] int64, sampled tokens of the rollout over all its segments, at least 1."""


class Estimator(Protocol):
    """Pure: equal inputs give equal outputs, and the inputs are not changed."""

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64, finite; applies to every sampled token of the rollout.

        Groups of equal rewards give exactly 0 for estimators that compare within groups.
        """
        ...
