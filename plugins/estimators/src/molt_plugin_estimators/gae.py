"""GAE: advantages from a critic's values, mixing horizons.

    δ_t = r_t + γ V_{t+1} − V_t          V = 0 after the last token of a rollout
    A_t = δ_t + γ λ A_{t+1}
    returns_t = A_t + V_t                what the critic learns, before whitening

"Next" is the next sampled token of the rollout, over tool results and over segments: what the policy did not
sample is neither a step nor a place with a value. r_t = −kl_coef · KL_t + turn rewards, + the rest of R at the end.

Source: Schulman et al. (arXiv 1506.02438), equations 11 and 16; advantages whitened as in PPO's usual practice.
Shapes: tokens [M], float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from molt_core.api.estimator import FloatVector, RewardBatch, SumOverRanks, TokenAdvantages, TokenRollouts
from molt_plugin_estimators.kl_reward import KlReward
from molt_plugin_estimators.spec import GaeOptions
from molt_plugin_estimators.token_returns import discounted_sums, next_values, whiten_tokens


class Gae:
    def __init__(self, options: GaeOptions) -> None:
        self._options = options
        self._kl = KlReward(options)

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] the rewards: what they are worth to each token is known where the values are."""
        return batch.rewards.copy()

    def token_advantages(self, rollouts: TokenRollouts, sum_over_ranks: SumOverRanks) -> TokenAdvantages:
        options, values = self._options, rollouts.values
        assert values is not None, "the facts of the spec ask for a critic"
        penalties, metrics = self._kl.penalties(rollouts, sum_over_ranks)
        rewards = rollouts.rewards - penalties
        deltas = rewards + options.gamma * next_values(values, rollouts.starts) - values
        advantages = discounted_sums(deltas, rollouts.starts, options.gamma * options.lam)
        returns = advantages + values
        if options.whiten:
            advantages = whiten_tokens(advantages, sum_over_ranks)
        return TokenAdvantages(advantages=advantages, returns=returns, metrics=metrics)

    def state(self) -> dict[str, Any]:
        """For checkpoints: the KL coefficient."""
        return self._kl.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._kl.restore(state)
