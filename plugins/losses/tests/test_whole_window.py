"""Input of the losses from plain vectors: its counts, and pieces of it that add up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from molt_plugin_losses.cispo import CispoLoss
from molt_plugin_losses.gspo import GspoLoss
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import CispoOptions, GspoOptions, PpoOptions
from molt_plugin_losses.whole_window import piece, whole_window

ROLLOUT = torch.tensor([0, 0, 1, 2, 2, 2])
GROUP = torch.tensor([0, 0, 0, 1, 1, 1])


def vectors() -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    logprobs, noise, advantages = (torch.randn(6, generator=generator) for _ in range(3))
    return [logprobs - 2, logprobs - 2 + 0.1 * noise, advantages]


def test_counts_are_those_of_rollouts_and_prompts() -> None:
    window = whole_window(*vectors(), ROLLOUT, group_index=GROUP)
    assert window.rollout_tokens.tolist() == [2, 2, 1, 3, 3, 3]
    assert window.group_tokens.tolist() == [3, 3, 3, 3, 3, 3]
    counts = window.window
    assert (counts.num_tokens, counts.num_rollouts, counts.num_groups) == (6, 3, 2)
    ratios = window.logprobs - window.behaviour_logprobs
    assert window.rollout_log_ratio[0].item() == pytest.approx(ratios[:2].mean().item())


def test_without_prompts_each_rollout_is_one() -> None:
    assert whole_window(*vectors(), ROLLOUT).window.num_groups == 3


@pytest.mark.parametrize(
    "loss",
    [
        PpoLoss(PpoOptions(aggregation="prompt-mean-token-mean", kl_coef=0.1, kl_reference="sampler")),
        GspoLoss(GspoOptions(aggregation="seq-mean-token-mean", clip_low=0.1, clip_high=0.1)),
        CispoLoss(CispoOptions(entropy_coef=0.1)),
    ],
)
def test_pieces_add_up_in_value_and_gradient(loss: Any) -> None:
    logprobs, behaviour, advantages = vectors()
    entropy = torch.rand(6)
    window = whole_window(logprobs, behaviour, advantages, ROLLOUT, group_index=GROUP, entropy=entropy)
    gradients, values = [], []
    for parts in ([torch.arange(6)], torch.arange(6).split(4)):
        live = logprobs.clone().requires_grad_()
        total = sum(loss(piece(window, which, live[which], entropy[which])).loss for which in parts)
        assert isinstance(total, torch.Tensor)
        total.backward()
        gradients.append(live.grad)
        values.append(total.detach())
    torch.testing.assert_close(values[1], values[0])
    torch.testing.assert_close(gradients[1], gradients[0])
