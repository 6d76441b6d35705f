"""Slot `losses`: from log-probs and advantages to a loss. torch.

API 1. The factory is called as `factory(options)`. Only sampled tokens arrive, as flat
vectors, so nothing at a masked position can touch the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import field, frozen

if TYPE_CHECKING:
    from torch import Tensor

    from molt_core.experience.batch import Window


@frozen(kw_only=True, eq=False)
class TokenBatch:
    """The N sampled tokens of one micro-batch. N may be 0."""

    logprobs: Tensor
    """[N] float32 under the current policy at the sampling temperature; carries the gradient."""
    behaviour_logprobs: Tensor
    """[N] float32 as sampled."""
    old_logprobs: Tensor
    """[N] float32, what the ratio is taken against, constant. As sampled; or of the policy before this step
    where a correction accounts for the difference between the two."""
    advantages: Tensor
    """[N] float32."""
    entropy: Tensor
    """[N] float32 of the current policy at the sampling temperature; carries a gradient only where the loss's
    facts ask for one."""
    weights: Tensor
    """[N] float32, coefficient of each token from the correction, constant; 1 without one. 0 leaves the token
    out of the sum, never out of a denominator."""
    rollout_log_ratio: Tensor
    """[N] float32, mean over the sampled tokens of the token's rollout of log π − log π_old before this step,
    constant; 0 unless the loss's facts ask for it."""
    reference_logprobs: Tensor | None
    """[N] float32 under the frozen reference model, constant; None without one."""
    top_logprobs: Tensor | None = None
    """[N, k] float32 under the current policy, of the tokens that the sampler found likeliest in the token's place,
    likeliest first; carries the gradient. None unless a plugin wants them (`Facts.top_logprobs`)."""
    top_reference_logprobs: Tensor | None = None
    """[N, k] float32 of the same tokens under the frozen reference, constant; None without either."""
    centering: Tensor | None = None
    """[N, j] float32, coefficients of the first j of `top_logprobs` from the correction, constant; else None."""
    rollout_tokens: Tensor
    """[N] float32, sampled tokens of the token's rollout in the window."""
    group_tokens: Tensor
    """[N] float32, sampled tokens of the token's prompt in the window."""
    rollout_index: Tensor
    """[N] int64, number of the rollout within the window."""
    group_index: Tensor
    """[N] int64, number of the prompt within the window."""
    window: Window
    """Counts of the whole optimizer window, for denominators."""


@frozen(kw_only=True, eq=False)
class LossOutput:
    loss: Tensor
    """Scalar. Summed over micro-batches and ranks it is the loss of the window: no further averaging."""
    token_sums: Mapping[str, Tensor] = field(factory=dict)
    """Metric name to a detached scalar, summed over the micro-batch's tokens; reported divided by all tokens."""


class Loss(Protocol):
    def __call__(self, tokens: TokenBatch) -> LossOutput: ...


@runtime_checkable
class AdaptiveLoss(Loss, Protocol):
    """A loss that steers something by what a step measured; it is `molt_core.api.trainer.Stateful` too."""

    def after_step(self, means: Mapping[str, float], num_rollouts: int) -> Mapping[str, float]:
        """Called once after each applied step, on every rank with equal arguments.

        Args:
            means: its `token_sums` over the whole window, divided by the window's tokens.
            num_rollouts: of the window.

        Returns:
            Metrics of its own.
        """
        ...
