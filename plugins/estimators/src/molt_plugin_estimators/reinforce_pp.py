"""REINFORCE++: the reward of a rollout, whitened over the whole batch.

    A_i = R_i, then whitened over all sampled tokens

The baseline is the batch itself, so prompts need not be sampled more than once, and a prompt that is
always solved still pushes its replies up against those of harder prompts.

Source: Hu et al., REINFORCE++ (arXiv 2501.03262). With discount 1 the return of each token is R_i.
Shapes: rewards [R], advantages [R], float64.
Left out: the per-token KL penalty inside the reward, discounts below 1, and clipping of rewards.
"""

from __future__ import annotations

from molt_core.api.estimator import FloatVector, RewardBatch
from molt_plugin_estimators.spec import WhitenOptions
from molt_plugin_estimators.whitening import whiten


class ReinforcePP:
    def __init__(self, options: WhitenOptions) -> None:
        self._whiten = options.whiten

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64; without whitening a copy of the rewards."""
        if not self._whiten:
            return batch.rewards.copy()
        return whiten(batch.rewards, batch.num_tokens)
