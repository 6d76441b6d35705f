"""Slot `estimators`: from the rewards of a step to advantages. numpy only.

API 1. The factory is called as `factory(options)`. One advantage for each rollout is made on the
driver from light data. An estimator whose facts provide `token-advantages` is asked again on every
trainer rank, where it makes one for each token from rewards, values and log-probs.

    class Centred:
        def __init__(self, options: NoOptions) -> None: ...
        def advantages(self, batch: RewardBatch) -> FloatVector:
            return batch.rewards - batch.rewards.mean()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

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


@frozen(kw_only=True)
class TokenRollouts:
    """The M sampled tokens of a rank's whole rollouts, one rollout after the other, in order of sampling."""

    starts: IntVector
    """[R + 1] int64, index of each rollout's first token, and M."""
    rewards: FloatVector
    """[M] float64. The rollout's advantage as made on the driver stands at its last token, or as turn rewards
    where they were earned, with the rest at the last token."""
    reference_log_ratio: FloatVector | None
    """[M] float64, log π − log π_ref before the step; None without a reference."""
    sampler_log_ratio: FloatVector | None = None
    """[M] float64, log π before the step − log π as sampled; None where nothing asks for it (fact `rollout-ratio`)."""
    values: FloatVector | None
    """[M] float64, the critic's estimate before the token is sampled; None without a critic."""


@frozen(kw_only=True)
class TokenAdvantages:
    advantages: FloatVector
    """[M] float64, finite."""
    returns: FloatVector | None = None
    """[M] float64, what the critic learns."""
    metrics: Mapping[str, float] = field(factory=dict)
    """Reported with the step; equal on all ranks."""


SumOverRanks = Callable[[FloatVector], FloatVector]
"""Elementwise sum of a small vector over all trainer ranks; every rank must call it equally often."""


class TokenEstimator(Estimator, Protocol):
    def token_advantages(self, rollouts: TokenRollouts, sum_over_ranks: SumOverRanks) -> TokenAdvantages:
        """R and M may be 0 on some ranks."""
        ...
