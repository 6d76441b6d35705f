"""Correction `importance`: weights for tokens that another policy sampled.

    w_t = exp(log π − log μ)         π the policy before the step, μ as sampled; held within e^±30

    gate        statistic of a token                                       of a rollout (seq)        (geo)
    ratio       w_t                                                        exp(Σ_t log w_t)          exp(mean_t log w_t)
    binary_kl   p log(p/q) + (1 − p) log((1 − p)/(1 − q)), p = μ, q = π    its mean over t           –
    tv          |p − q|                                                    its mean over t           –

    mode mask   weight w_t where low ≤ statistic ≤ high, else 0
    mode clip   clamp(w_t, low, high)                                      token and ratio only
    mode trunc  min(w_t, high)                                             token and ratio only

Weights are constants to the gradient, and tokens of weight 0 stay in the loss's denominators. A rollout is one
sequence, however many segments it has.

Source: truncated importance sampling: Ionides (2008), as used for mismatched engines by Yao et al. (2025); masks
by sequence and by geometric mean: Liu et al. (2025), When Speed Kills Stability; binary KL and total variation of
the sampled token against the rest: the two-outcome forms of their definitions.
Shapes: [N] in, [N] out; all tokens of a rollout must be in one call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from molt_core.api.correction import CorrectionBatch, CorrectionWeights
from molt_plugin_losses.correction_spec import ImportanceOptions
from molt_plugin_losses.ratio import log_ratio

SMALLEST: float = 1e-6
"""Probabilities are held this far from 0 and 1, where the binary KL is infinite."""


class ImportanceCorrection:
    def __init__(self, options: ImportanceOptions) -> None:
        self._options = options
        self._low, self._high = options.band

    @torch.no_grad()
    def weights(self, batch: CorrectionBatch) -> CorrectionWeights:
        options = self._options
        log_weights = log_ratio(batch.logprobs, batch.behaviour_logprobs)
        weights = log_weights.exp()
        if options.mode == "clip":
            weights = weights.clamp(self._low, self._high)
        elif options.mode == "trunc":
            weights = weights.clamp(max=self._high)
        if options.mode != "mask":
            return CorrectionWeights(weights=weights, kept=torch.ones_like(weights, dtype=torch.bool))
        statistic = self._statistic(batch, log_weights)
        kept = (statistic >= self._low) & (statistic <= self._high)
        return CorrectionWeights(weights=weights.where(kept, 0.0), kept=kept)

    def _statistic(self, batch: CorrectionBatch, log_weights: Tensor) -> Tensor:
        """[N], equal for all tokens of a rollout unless the level is token."""
        level, gate = self._options.level, self._options.gate
        per_token = log_weights if gate == "ratio" else _divergence(gate, batch)
        if level == "token":
            return per_token.exp() if gate == "ratio" else per_token
        total = gate == "ratio" and level == "seq"
        over_rollout = _over_rollouts(per_token, batch.rollout_index, mean=not total)
        return (
            log_ratio(over_rollout, torch.zeros_like(over_rollout)).exp() if gate == "ratio" else over_rollout
        )


def _divergence(gate: str, batch: CorrectionBatch) -> Tensor:
    p, q = (
        torch.nan_to_num(logprobs.exp(), nan=0.0).clamp(SMALLEST, 1 - SMALLEST)
        for logprobs in (batch.behaviour_logprobs, batch.logprobs)
    )
    if gate == "tv":
        return (p - q).abs()
    return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()


def _over_rollouts(values: Tensor, rollout_index: Tensor, *, mean: bool) -> Tensor:
    """[N] sum or mean of `values` over the tokens of each token's rollout."""
    if len(values) == 0:
        return values
    sums = values.new_zeros(int(rollout_index.max()) + 1).index_add_(0, rollout_index, values)
    counts = torch.zeros_like(sums).index_add_(0, rollout_index, torch.ones_like(values))
    return ((sums / counts) if mean else sums)[rollout_index]
