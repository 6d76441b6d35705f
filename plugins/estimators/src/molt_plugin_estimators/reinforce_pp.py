"""REINFORCE++: the return of a token, whitened over the whole batch.

    r_t = −kl_coef · KL_t, + R at the last token; with turn_rewards each turn's reward at the turn's last token
    G_t = r_t + γ G_{t+1}
    A_t = G_t, whitened over all sampled tokens

With γ = 1, no KL penalty and one reward at the end, every token's return is R and this is one advantage for each
rollout. The baseline is the batch itself, so prompts need not be sampled more than once, and a prompt that is
always solved still pushes its replies up against those of harder prompts.

Source: Hu et al., REINFORCE++ (arXiv 2501.03262).
Shapes: rewards [R], advantages [R]; for tokens [M]; float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from molt_core.api.estimator import (
    FloatVector,
    RewardBatch,
    SumOverRanks,
    TokenAdvantages,
    TokenRollouts,
)
from molt_plugin_estimators.kl_reward import KlReward
from molt_plugin_estimators.spec import ReinforceOptions, makes_token_advantages
from molt_plugin_estimators.token_returns import at_the_ends, discounted_sums, whiten_tokens
from molt_plugin_estimators.whitening import whiten


class ReinforcePP:
    def __init__(self, options: ReinforceOptions) -> None:
        self._options = options
        self._kl = KlReward(options)

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64; the rewards themselves without whitening, and where tokens are looked at later."""
        if not self._options.whiten or makes_token_advantages(self._options):
            return batch.rewards.copy()
        return whiten(batch.rewards, batch.num_tokens)

    def token_advantages(self, rollouts: TokenRollouts, sum_over_ranks: SumOverRanks) -> TokenAdvantages:
        penalties, metrics = self._kl.penalties(rollouts, sum_over_ranks)
        rewards = rollouts.rewards
        if not self._options.turn_rewards:
            rewards = at_the_ends(rewards, rollouts.starts)
        returns = discounted_sums(rewards - penalties, rollouts.starts, self._options.gamma)
        if self._options.whiten:
            returns = whiten_tokens(returns, sum_over_ranks)
        return TokenAdvantages(advantages=returns, metrics=metrics)

    def state(self) -> dict[str, Any]:
        """For checkpoints: the KL coefficient."""
        return self._kl.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._kl.restore(state)
