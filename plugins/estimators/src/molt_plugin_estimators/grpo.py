"""GRPO: reward minus the mean of its group, divided by the standard deviation of its group.

    A_i = (R_i − mean) / (std + eps)    over the n rollouts of i's group; std with n − 1 in the denominator

Source: Shao et al., DeepSeekMath (arXiv 2402.03300), section 4.1, outcome supervision.
Shapes: rewards [R], groups [R], advantages [R], float64.
Left out: process supervision (one reward per reasoning step) and the KL term, which belongs to the loss.
"""

from __future__ import annotations

import numpy as np

from molt_core.api.estimator import FloatVector, RewardBatch
from molt_plugin_estimators.centring import centred, group_sizes, group_sums
from molt_plugin_estimators.spec import GrpoOptions


class Grpo:
    def __init__(self, options: GrpoOptions) -> None:
        self._eps = options.eps

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64; exactly 0 in groups of equal rewards and in groups of one."""
        advantages = centred(batch)
        # a group of one has advantage 0 already; its divisor only must not be 0
        divisors = np.maximum(group_sizes(batch.groups) - 1, 1)
        deviations = np.sqrt(group_sums(advantages**2, batch.groups) / divisors)
        scaled: FloatVector = advantages / (deviations + self._eps)
        return scaled
