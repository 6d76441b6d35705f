"""From logits to one token and its log-probability for each row. Pure.

Legend of shape suffixes: B rows of the batch, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def sample(
    logits_BV: torch.Tensor, temperatures: Sequence[float], uniforms: Sequence[float], *, num_top: int = 0
) -> tuple[list[int], list[float], list[list[int]], list[list[float]]]:
    """Draw from softmax(logits / temperature) by inverting its cumulative distribution.

    One number per row decides its token, so a row's token does not depend on its batch mates.

    Args:
        logits_BV: any float dtype; computed in float32, the cumulative sum in float64.
        temperatures: [B]; 0 takes the most likely token, with its log-probability unscaled.
        uniforms: [B], in [0, 1).

    Returns:
        token ids and log-probs, [B] each; ids and log-probs of the likeliest tokens, [B, num_top] each.

    Raises:
        FloatingPointError: a row holds no number that could be sampled from.
    """
    scale_B1 = torch.tensor([t or 1.0 for t in temperatures], device=logits_BV.device)[:, None]
    logprobs_BV = (logits_BV.float() / scale_B1).log_softmax(-1)
    if not logprobs_BV.isfinite().any(-1).all() or logprobs_BV.isnan().any():
        raise FloatingPointError("the model returned logits that are not finite")
    cumulative_BV = logprobs_BV.double().exp().cumsum(-1)
    # the last sum is 1 only up to rounding; right=True never lands on a token of probability 0
    threshold_B1 = (
        torch.tensor(uniforms, dtype=torch.float64, device=logits_BV.device)[:, None] * cumulative_BV[:, -1:]
    )
    drawn_B1 = torch.searchsorted(cumulative_BV, threshold_B1, right=True)
    greedy_B1 = logprobs_BV.argmax(-1, keepdim=True)
    is_greedy_B1 = torch.tensor([t == 0 for t in temperatures], device=logits_BV.device)[:, None]
    tokens_B1 = torch.where(is_greedy_B1, greedy_B1, drawn_B1)
    top = logprobs_BV.topk(num_top, -1)
    own_B = logprobs_BV.gather(-1, tokens_B1)[:, 0]
    return tokens_B1[:, 0].tolist(), own_B.tolist(), top.indices.tolist(), top.values.tolist()
