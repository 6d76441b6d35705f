"""How much each sampled token counts: from per-token terms to one number.

In: [N] terms, and counts of the whole optimizer window. Out: [N] coefficients whose weighted sum over all
micro-batches and ranks is the aggregate. A rollout with several segments is one sequence.

    token-mean             1 / T              T sampled tokens in the window       DAPO (arXiv 2503.14476), eq. 8
    seq-mean-token-mean    1 / (R n_r)        R rollouts of n_r tokens             GRPO (arXiv 2402.03300), eq. 3
    seq-mean-token-sum     1 / R                                                   Dr. GRPO (arXiv 2503.20783)
    prompt-mean-token-mean 1 / (G n_g)        G prompts of n_g tokens

Tokens that a correction left out stay in every denominator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torch import Tensor

from molt_core.api.loss import TokenBatch

Aggregation = Callable[[TokenBatch], Tensor]


def token_mean(tokens: TokenBatch) -> Tensor:
    return tokens.rollout_tokens.new_ones(len(tokens.logprobs)) / tokens.window.num_tokens


def seq_mean_token_mean(tokens: TokenBatch) -> Tensor:
    return 1.0 / (tokens.rollout_tokens * tokens.window.num_rollouts)


def seq_mean_token_sum(tokens: TokenBatch) -> Tensor:
    return tokens.rollout_tokens.new_ones(len(tokens.logprobs)) / tokens.window.num_rollouts


def prompt_mean_token_mean(tokens: TokenBatch) -> Tensor:
    return 1.0 / (tokens.group_tokens * tokens.window.num_groups)


AGGREGATIONS: Final[dict[str, Aggregation]] = {
    "token-mean": token_mean,
    "seq-mean-token-mean": seq_mean_token_mean,
    "seq-mean-token-sum": seq_mean_token_sum,
    "prompt-mean-token-mean": prompt_mean_token_mean,
}
