"""RLOO: reward minus the mean of the other rollouts of its group (leave one out).

    A_i = R_i − (sum of the group − R_i) / (n − 1)  =  (R_i − mean) · n / (n − 1)

The baseline does not contain the reward that it is subtracted from, so the gradient stays unbiased.

Source: Ahmadian et al., Back to Basics (arXiv 2402.14740), equation 7; Kool et al. 2019.
Shapes: rewards [R], groups [R], advantages [R], float64.
Left out: the KL penalty inside the reward. Where some write the raw reward for a group of one, it is 0 here,
as for all estimators that compare within a group.
"""

from __future__ import annotations

import numpy as np

from molt_core.api.estimator import FloatVector, RewardBatch
from molt_core.api.options import NoOptions
from molt_plugin_estimators.centring import centred, group_sizes


class Rloo:
    def __init__(self, options: NoOptions) -> None:
        """Has no knobs."""

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64; exactly 0 in groups of equal rewards and in groups of one."""
        sizes = group_sizes(batch.groups)
        advantages: FloatVector = centred(batch) * sizes / np.maximum(sizes - 1, 1)
        return advantages
