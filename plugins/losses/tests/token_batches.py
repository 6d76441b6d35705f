"""What a loss is given, from vectors: one rollout of one prompt in float32 unless said otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molt_core.api.loss import TokenBatch
from molt_core.experience.batch import Window


def token_batch(logprobs: Tensor, behaviour: Tensor, advantages: Tensor, **more: Any) -> TokenBatch:
    size = len(logprobs)
    like = logprobs.detach()
    fields: dict[str, Any] = {
        "old_logprobs": behaviour,
        "entropy": torch.zeros_like(like),
        "weights": torch.ones_like(like),
        "rollout_log_ratio": torch.zeros_like(like),
        "reference_logprobs": None,
        "rollout_tokens": torch.full_like(like, float(size)),
        "group_tokens": torch.full_like(like, float(size)),
        "rollout_index": torch.zeros(size, dtype=torch.int64),
        "group_index": torch.zeros(size, dtype=torch.int64),
        "window": Window(num_tokens=size or 1, num_rollouts=1, num_groups=1),
    }
    return TokenBatch(
        logprobs=logprobs, behaviour_logprobs=behaviour, advantages=advantages, **(fields | more)
    )
