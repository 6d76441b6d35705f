"""What a step reports: sums over tokens, and their means over all ranks.

In: detached per-token vectors of one micro-batch after another. Out: floats that are equal on all ranks.
Every sum is divided by the number of sampled tokens of the window, whatever the loss divided by.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from molt_core.api.loss import LossOutput, TokenBatch
from molt_plugin_fsdp import ranks


class StepSums:
    """Added up on one rank. Each rank adds at least one micro-batch, so all have the same names."""

    def __init__(self) -> None:
        self._over_tokens: dict[str, Tensor] = {}
        self._loss = torch.zeros((), dtype=torch.float64)
        self._input_tokens = 0

    def add(self, tokens: TokenBatch, output: LossOutput, num_input_tokens: int) -> None:
        # bounded, so that one token that became impossible leaves the other means readable
        difference = (tokens.logprobs.detach() - tokens.behaviour_logprobs).clamp(-30, 30)
        sums = {
            **output.token_sums,
            "policy/entropy": tokens.entropy.detach().sum(),
            # k3 of http://joschu.net/blog/kl-approx.html, sampled from the engine's distribution
            "mismatch/kl": (difference.exp() - 1 - difference).sum(),
            "mismatch/abs_diff": difference.abs().sum(),
        }
        if tokens.top_logprobs is not None:
            sums["policy/top_mass"] = tokens.top_logprobs.detach().exp().sum()
        for name, value in sums.items():
            self._over_tokens[name] = self._over_tokens.get(name, 0.0) + value.double()
        self._loss = self._loss + output.loss.detach().double().cpu()
        self._input_tokens += num_input_tokens

    def reduce(self, num_tokens: int) -> tuple[float, Mapping[str, float]]:
        """The window's loss, as optimized, and means over its `num_tokens` sampled tokens. Collective."""
        counts = {"loss": self._loss, "input_tokens": torch.tensor(self._input_tokens)}
        totals = ranks.summed({**self._over_tokens, **counts})
        loss, input_tokens = totals.pop("loss"), totals.pop("input_tokens")
        means = {name: total / num_tokens for name, total in totals.items()}
        return loss, {
            **means,
            "trainer/input_tokens": input_tokens,
            "trainer/sampled_tokens": float(num_tokens),
        }
