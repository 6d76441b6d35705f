"""Slot `corrections`: weights for tokens that were sampled by another policy than the one that trains. torch.

API 1. The factory is called as `factory(options)`. Called once a step on all tokens of a rank,
after a pass of the policy before the step; the loss multiplies its terms with the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from attrs import frozen

if TYPE_CHECKING:
    from torch import Tensor


@frozen(kw_only=True, eq=False)
class CorrectionBatch:
    """N sampled tokens, rollouts whole."""

    logprobs: Tensor
    """[N] float32 under the policy before the step, at the sampling temperature."""
    behaviour_logprobs: Tensor
    """[N] float32 as sampled."""
    rollout_index: Tensor
    """[N] int64."""
    top_logprobs: Tensor | None = None
    """[N, k] float32 under the policy before the step, of the tokens that the sampler found likeliest; None unless
    a plugin wants them (`Facts.top_logprobs`)."""
    top_behaviour_logprobs: Tensor | None = None
    """[N, k] float32 of the same tokens as sampled, likeliest first. k is at least what the correction wants."""


@frozen(kw_only=True, eq=False)
class CorrectionWeights:
    weights: Tensor
    """[N] float32, finite and not negative. 0 leaves a token out of the sum, not out of the denominators."""
    kept: Tensor
    """[N] bool, False where the correction left the token out."""
    centering: Tensor | None = None
    """[N, j] float32, finite: coefficients c of the first j of these tokens. Losses that provide `centering-term`
    add A_t · Σ_v c_tv log π(v) to each token's term, whatever its weight."""


class Correction(Protocol):
    def weights(self, batch: CorrectionBatch) -> CorrectionWeights: ...
