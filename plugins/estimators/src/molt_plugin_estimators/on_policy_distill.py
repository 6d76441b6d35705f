"""On-policy distillation: every token is rewarded by how much likelier the teacher finds it.

    A_t = −kl_coef · (log π(t) − log π_teacher(t))

The negative reverse KL of the sampled token, k1. Rewards of the environment play no part; they are reported.
Not whitened: zero is where the policy agrees with the teacher.

Source: Agarwal et al. (arXiv 2306.13649), reverse KL on the student's own samples; Lu, On-Policy Distillation (2025).
Shapes: tokens [M], float64.
"""

from __future__ import annotations

import numpy as np

from molt_core.api.estimator import FloatVector, RewardBatch, SumOverRanks, TokenAdvantages, TokenRollouts
from molt_plugin_estimators.kl_reward import kl_estimates
from molt_plugin_estimators.spec import DistillOptions


class OnPolicyDistill:
    def __init__(self, options: DistillOptions) -> None:
        self._coef = options.kl_coef

    def advantages(self, batch: RewardBatch) -> FloatVector:
        return np.zeros_like(batch.rewards)

    def token_advantages(self, rollouts: TokenRollouts, sum_over_ranks: SumOverRanks) -> TokenAdvantages:
        assert rollouts.reference_log_ratio is not None, "the facts of the spec ask for a teacher"
        kl = kl_estimates(rollouts.reference_log_ratio, "k1")
        total, num_tokens = sum_over_ranks(np.array([kl.sum(), float(len(kl))]))
        metrics = {"estimator/kl": float(total / max(num_tokens, 1.0))}
        return TokenAdvantages(advantages=-self._coef * kl, metrics=metrics)
