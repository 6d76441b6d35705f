"""Advantages from ranks: only the order of the rewards of a prompt counts, not their scale.

Centred ranks as in fitness shaping of evolution strategies (Salimans et al. 2017,
arXiv 1703.03864, section 2.1): the worst of n rewards gets -scale, the best +scale, the
others lie evenly between; equal rewards share the mean of their ranks.
"""

from __future__ import annotations

import numpy as np

from molt_core.api.estimator import FloatVector, RewardBatch
from molt_plugin_acme.spec import RankOptions


class Rank:
    def __init__(self, options: RankOptions) -> None:
        self.scale = options.scale

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64 in [-scale, scale]; 0 where a prompt has one rollout or all rewards are equal."""
        result = np.zeros(len(batch.rewards))
        for group in np.unique(batch.groups):
            members = batch.groups == group
            result[members] = self.scale * _centred_ranks(batch.rewards[members])
        return result


def _centred_ranks(rewards: FloatVector) -> FloatVector:
    """[n] in [-1, 1]: how many are lower minus how many are higher, by the number of others."""
    lower = (rewards[None, :] < rewards[:, None]).sum(axis=1)
    higher = (rewards[None, :] > rewards[:, None]).sum(axis=1)
    return (lower - higher) / max(len(rewards) - 1, 1)
