"""The per-token KL penalty inside the reward: r_t − coef · KL_t, with a fixed or a steered coefficient.

With d = log π − log π_ref of the sampled token:  k1 = d,  k2 = d²/2,  k3 = e^(−d) − 1 + d. Where the reference is the
policy as it sampled, the tokens are the reference's own and k3 = e^d − 1 − d: a penalty on what moved since.

In: [M] log-ratios before the step, constants. Out: [M] penalties, finite: d is held within ±30, k2 and k3
below 10.

Source: Ouyang et al., InstructGPT (arXiv 2203.02155), equation 2, for the penalty in the reward; Schulman (2020)
for the estimates; Ziegler et al. (arXiv 1909.08593), section 2.2, for the steering.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from molt_core.api.estimator import FloatVector, SumOverRanks, TokenRollouts
from molt_plugin_estimators.spec import KlOptions

MAX_LOG_RATIO: Final = 30.0
MOST: Final = 10.0


def kl_estimates(log_ratio: FloatVector, form: str, *, sampled_by_reference: bool = False) -> FloatVector:
    """[M] float64."""
    d = np.clip(
        np.nan_to_num(log_ratio, nan=0.0, posinf=MAX_LOG_RATIO, neginf=-MAX_LOG_RATIO),
        -MAX_LOG_RATIO, MAX_LOG_RATIO,
    )  # fmt: skip
    if form == "k1":
        return d
    towards = -d if sampled_by_reference else d
    estimates: FloatVector = np.minimum(d**2 / 2 if form == "k2" else np.exp(-towards) - 1 + towards, MOST)
    return estimates


class KlReward:
    def __init__(self, options: KlOptions) -> None:
        self._options = options
        self.coef = options.kl_coef

    def penalties(
        self, rollouts: TokenRollouts, sum_over_ranks: SumOverRanks
    ) -> tuple[FloatVector, dict[str, float]]:
        """[M] coef · KL and its metrics, then steers the coefficient by the mean over all ranks.

        0 and no metrics without a coefficient.
        """
        if self._options.kl_coef == 0:
            return np.zeros_like(rollouts.rewards), {}
        by_sampler = self._options.kl_reference == "sampler"
        log_ratio = rollouts.sampler_log_ratio if by_sampler else rollouts.reference_log_ratio
        assert log_ratio is not None, (
            "the facts of the spec ask for a reference, or for a pass before the step"
        )
        kl = kl_estimates(log_ratio, self._options.kl_form, sampled_by_reference=by_sampler)
        penalties: FloatVector = self.coef * kl
        total, num_tokens, num_rollouts = sum_over_ranks(
            np.array([kl.sum(), float(len(kl)), float(len(rollouts.starts) - 1)])
        )
        mean = float(total / max(num_tokens, 1.0))
        metrics = {"estimator/kl": mean, "estimator/kl_coef": self.coef}
        if self._options.kl_target is not None:
            error = min(max(mean / self._options.kl_target - 1.0, -0.2), 0.2)
            self.coef *= 1.0 + error * float(num_rollouts) / self._options.kl_horizon
        return penalties, metrics

    def state(self) -> dict[str, Any]:
        return {"kl_coef": self.coef}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.coef = float(state["kl_coef"])
