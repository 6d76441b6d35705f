"""REINFORCE++ with baseline: reward minus the mean of its group, whitened over the whole batch.

    A_i = R_i − mean of the rewards of i's group, then whitened over all sampled tokens

Dividing by one deviation for the batch instead of one for each group keeps hard and easy prompts in
proportion: a prompt that is solved once in eight does not get the step size of one that is solved in half.

Source: Hu et al., REINFORCE++ (arXiv 2501.03262), the variant with a group mean as baseline.
Shapes: rewards [R], groups [R], advantages [R], float64.
Different from the paper: a group of equal rewards stays at exactly 0. Whitening subtracts the mean over
tokens, which is not 0 when lengths differ, and would train on groups that say nothing. Such groups still
count in the mean and the variance.
Left out: the KL term, which belongs to the loss.
"""

from __future__ import annotations

import numpy as np

from molt_core.api.estimator import FloatVector, RewardBatch
from molt_plugin_estimators.centring import centred, groups_are_flat
from molt_plugin_estimators.spec import WhitenOptions
from molt_plugin_estimators.whitening import whiten


class ReinforcePPBaseline:
    def __init__(self, options: WhitenOptions) -> None:
        self._whiten = options.whiten

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64; exactly 0 in groups of equal rewards and in groups of one."""
        advantages = centred(batch)
        if not self._whiten:
            return advantages
        return np.where(groups_are_flat(batch), 0.0, whiten(advantages, batch.num_tokens))
