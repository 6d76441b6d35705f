"""Estimates of a KL divergence from the tokens that were sampled.

In: [N] log-probabilities of the policy and of a reference. Out: [N] estimates, finite. With d = log π − log π_ref:

    k1 = d                             unbiased for KL(π‖π_ref) of samples from π; may be negative
    k2 = d² / 2                        its gradient is that of KL(π‖π_ref)
    k3 = e^(−d) − 1 + d                for samples from π, against a frozen model; never negative
    k3 = e^(d) − 1 − d                 for samples from the reference itself: then it estimates KL(π_ref‖π)

The last form is for a reference that is the sampling policy, since the tokens are its samples.
k2 and k3 are held below 10, so that one token that became impossible does not own the step.

Source: Schulman, Approximating KL Divergence (2020).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from molt_plugin_losses.ratio import log_ratio

KlForm = Literal["k1", "k2", "k3"]
MOST: float = 10.0


def kl_estimate(logprobs: Tensor, reference: Tensor, form: KlForm, *, sampled_by_reference: bool) -> Tensor:
    """[N] float, with gradient to `logprobs`."""
    d = log_ratio(logprobs, reference)
    if form == "k1":
        return d
    if form == "k2":
        return (d.square() / 2).clamp(max=MOST)
    if sampled_by_reference:
        return (d.exp() - 1 - d).clamp(max=MOST)
    return ((-d).exp() - 1 + d).clamp(max=MOST)


class KlCoefficient:
    """Fixed, or steered so that the measured KL stays near a target.

        coef ← coef · (1 + clip(KL / target − 1, ±0.2) · n / horizon)      n rollouts since the last update

    Source: Ziegler et al. (arXiv 1909.08593), section 2.2.
    """

    def __init__(self, start: float, target: float | None, horizon: float) -> None:
        self.value = start
        self._target = target
        self._horizon = horizon

    def observe(self, kl: float, num_rollouts: int) -> None:
        """Args: mean KL per token over the step that `num_rollouts` rollouts made."""
        if self._target is not None:
            error = min(max(kl / self._target - 1.0, -0.2), 0.2)
            self.value *= 1.0 + error * num_rollouts / self._horizon
