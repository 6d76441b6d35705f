"""The ratio of new to old probability, in a form that can't overflow.

In: two [N] vectors of log-probabilities. Out: their difference, finite and within ±30. Does not decide
what a loss does with it.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

MAX_LOG_RATIO: Final = 30.0
"""exp(30) is 1e13: far outside any clip range, and its products stay finite in float32."""
LOWEST_LOGPROB: Final = -1e4


def log_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """[N] log(π / π_old), within ±30.

    Where the difference is NaN it is 0, and where it is infinite it is ±30; both without gradient, as is
    what the clamp cuts off. A model that produces NaN is not hidden by this: its gradient is NaN further
    down, and the trainer skips the step.
    """
    difference = torch.nan_to_num(
        logprobs - old_logprobs, nan=0.0, posinf=MAX_LOG_RATIO, neginf=-MAX_LOG_RATIO
    )
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def probability(logprobs: Tensor) -> Tensor:
    """exp of log-probabilities of any shape; 0 where they are NaN or −inf, without gradient."""
    return torch.nan_to_num(logprobs, nan=LOWEST_LOGPROB, neginf=LOWEST_LOGPROB).exp()


def rest(probabilities: Tensor) -> Tensor:
    """[N] what [N, k] probabilities leave of 1, at least 1e-6: in float32 it is known no better."""
    return (1 - probabilities.sum(-1)).clamp(min=1e-6)


def finite(logprobs: Tensor) -> Tensor:
    """[N] the log-probabilities, with NaN as 0 and −inf as −1e4, both without gradient."""
    return torch.nan_to_num(logprobs, nan=0.0, neginf=LOWEST_LOGPROB).clamp(min=LOWEST_LOGPROB)
