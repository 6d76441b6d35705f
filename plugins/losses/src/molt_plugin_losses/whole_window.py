"""A `TokenBatch` from plain vectors, for training loops that are not Molt's: the whole optimizer window in one piece.

In: what the loop has, [N] over all sampled tokens. Out: what the losses take, with every count made from the numbers
of rollouts and prompts. For a window in several pieces, make the whole once and index its vectors; the counts stay.
"""

from __future__ import annotations

import torch
from attrs import fields_dict
from torch import Tensor

from molt_core.api.loss import TokenBatch
from molt_core.experience.batch import Window
from molt_plugin_losses.ratio import log_ratio


def whole_window(
    logprobs: Tensor, behaviour_logprobs: Tensor, advantages: Tensor, rollout_index: Tensor, *,
    group_index: Tensor | None = None, old_logprobs: Tensor | None = None, entropy: Tensor | None = None,
    weights: Tensor | None = None, reference_logprobs: Tensor | None = None,
) -> TokenBatch:  # fmt: skip
    """Fields as in `TokenBatch`, which says what each is.

    Args:
        rollout_index: [N] int64; rollouts are numbered from 0 without gaps, and so are prompts.
        group_index: the prompt of each token; each rollout is one of its own without it.
        old_logprobs: what the ratio is taken against; as sampled without it. With a correction: of the policy before
            the step.
        weights: of a correction.
    """
    group_index = rollout_index if group_index is None else group_index
    now, ones = logprobs.detach(), torch.ones_like(logprobs.detach())
    old = behaviour_logprobs if old_logprobs is None else old_logprobs
    rollout_tokens = _sums(ones, rollout_index)
    return TokenBatch(
        logprobs=logprobs,
        behaviour_logprobs=behaviour_logprobs,
        old_logprobs=old,
        advantages=advantages,
        entropy=torch.zeros_like(ones) if entropy is None else entropy,
        weights=ones if weights is None else weights,
        rollout_log_ratio=_sums(log_ratio(now, old), rollout_index) / rollout_tokens,
        reference_logprobs=reference_logprobs,
        rollout_tokens=rollout_tokens,
        group_tokens=_sums(ones, group_index),
        rollout_index=rollout_index,
        group_index=group_index,
        window=Window(
            num_tokens=len(now),
            num_rollouts=int(rollout_index.max()) + 1,
            num_groups=int(group_index.max()) + 1,
        ),
    )


def piece(whole: TokenBatch, which: Tensor, logprobs: Tensor, entropy: Tensor | None = None) -> TokenBatch:
    """A micro-batch: tokens `which` [n] of the window, with log-probs [n] that carry a gradient.

    Losses of the pieces add up to that of the window: sum them, or call backward on each.
    """
    own = {"logprobs": logprobs} | ({} if entropy is None else {"entropy": entropy})
    vectors = {name: getattr(whole, name) for name in fields_dict(TokenBatch)}
    parts = {name: value[which] if isinstance(value, Tensor) else value for name, value in vectors.items()}
    return TokenBatch(**(parts | own))


def _sums(values: Tensor, index: Tensor) -> Tensor:
    """[N] sum of `values` over the tokens that share a token's index."""
    return values.new_zeros(int(index.max()) + 1).index_add_(0, index, values)[index]
