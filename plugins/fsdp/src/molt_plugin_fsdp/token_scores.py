"""Log-probs of chosen tokens, and the entropy beside them, from hidden states: one step of the graph, no logits kept.

    z = (W h + b) / temperature        log p(v) = z_v − log Σ_u e^{z_u}        H = −Σ_v p(v) log p(v)
    ∂ log p(c) / ∂z_v = 1[v = c] − p(v)                                        ∂H / ∂z_v = −p(v) (log p(v) + H)

In: [N, D] hidden states, the output layer's weights, ids of m tokens for each state. Out: [N, m] log-probs in
float32 (float64 of float64) and hardly below −1e4, and [N] entropies. Logits exist for `rows` states at a time. The
backward pass computes them once more, with the logarithm of the sum known, and adds to one gradient of W: that is
less work than taking the whole graph again, and costs about as much as keeping all logits. It may not be
differentiated twice.

Source: the derivatives are those of the softmax; computing them piece by piece from the hidden states as in Wijmans
et al., Cut Your Losses (arXiv 2411.09009).
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

LOWEST: Final = -1e4
"""Of a log-prob, relative to the likeliest token: a token that a model rules out is finite."""


class TokenScores(Function):
    """`TokenScores.apply(states, weight, bias, wanted, temperature, rows)`; N may be 0, the bias None."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: Tensor,
        temperature: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        chosen, entropies, log_sums = [], [], []
        for part, ids in zip(states.split(rows), wanted.split(rows), strict=True):
            logits = _logits(part, weight, bias, temperature)
            peak = logits.amax(-1, keepdim=True)
            shifted = logits.sub_(peak).clamp_(min=LOWEST)
            weights = shifted.exp()
            total = weights.sum(-1)
            chosen.append(shifted.gather(-1, ids) - total.log()[:, None])
            entropies.append(total.log() - weights.mul_(shifted).sum(-1) / total)
            log_sums.append(peak[:, 0] + total.log())
            del logits, shifted, weights  # or two pieces would be in memory at once
        entropy = torch.cat(entropies)
        ctx.save_for_backward(states, weight, bias, wanted, torch.cat(log_sums), entropy)
        ctx.temperature, ctx.rows = temperature, rows
        ctx.set_materialize_grads(False)
        return torch.cat(chosen), entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_chosen: Tensor | None, of_entropy: Tensor | None) -> tuple[Any, ...]:
        states, weight, bias, wanted, log_sums, entropy = ctx.saved_tensors
        if of_chosen is None:
            of_chosen = log_sums.new_zeros(wanted.shape)
        needs_states, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        to_states: list[Tensor] = []
        to_weight = torch.zeros_like(weight) if needs_weight else None
        to_bias = torch.zeros_like(bias) if needs_bias else None
        for at in range(0, max(len(states), 1), ctx.rows):
            piece = slice(at, at + ctx.rows)
            logits = _logits(states[piece], weight, bias, ctx.temperature)
            log_probs = logits.sub_(log_sums[piece, None])
            slope = -of_chosen[piece].sum(-1, keepdim=True)
            if of_entropy is None:
                gradient = log_probs.exp_().mul_(slope)
            else:
                probs = log_probs.exp()
                towards = (
                    log_probs.clamp_(min=LOWEST).add_(entropy[piece, None]).mul_(-of_entropy[piece, None])
                )
                gradient = probs.mul_(towards.add_(slope))
            gradient.scatter_add_(-1, wanted[piece], of_chosen[piece]).div_(ctx.temperature)
            gradient = gradient.to(weight.dtype)
            if needs_states:
                to_states.append(gradient @ weight)
            if to_weight is not None:
                to_weight.addmm_(gradient.T, states[piece])
            if to_bias is not None:
                to_bias += gradient.sum(0)
            del logits, log_probs, gradient
        return torch.cat(to_states) if needs_states else None, to_weight, to_bias, None, None, None


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    """[n, V] at least float32, a tensor of its own."""
    logits = torch.nn.functional.linear(states, weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits if temperature == 1.0 else logits.div_(temperature)
