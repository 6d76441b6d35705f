"""The clipped surrogate: exact values, its gradient, and what it does at the edges of float32."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import PpoOptions
from torch import Tensor

from molt_core.api.loss import TokenBatch
from molt_core.experience.batch import Window

CASES = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
INF, NAN = float("inf"), float("nan")


def exact(values: list[str]) -> Tensor:
    return torch.tensor([float(Fraction(value)) for value in values], dtype=torch.float64)


def token_batch(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, num_tokens: int | None = None
) -> TokenBatch:
    size = len(logprobs)
    window = Window(num_tokens=num_tokens or size or 1, num_rollouts=1, num_groups=1)
    return TokenBatch(
        logprobs=logprobs, behaviour_logprobs=behaviour, old_logprobs=behaviour, advantages=advantages,
        entropy=torch.zeros(size), weights=torch.ones(size), rollout_log_ratio=torch.zeros(size),
        reference_logprobs=None, rollout_tokens=torch.full((size,), float(size)),
        group_tokens=torch.full((size,), float(size)),
        rollout_index=torch.zeros(size, dtype=torch.int64), group_index=torch.zeros(size, dtype=torch.int64),
        window=window,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_equals_exact_values(case: dict[str, Any]) -> None:
    behaviour = torch.full((len(case["ratios"]),), -2.0, dtype=torch.float64)
    logprobs = (behaviour + exact(case["ratios"]).log()).requires_grad_()
    options = PpoOptions(
        clip_low=float(Fraction(case["clip_low"])), clip_high=float(Fraction(case["clip_high"]))
    )
    output = PpoLoss(options)(token_batch(logprobs, behaviour, exact(case["advantages"]), case["num_tokens"]))
    output.loss.backward()
    torch.testing.assert_close(output.loss.item(), float(Fraction(case["loss"])))
    torch.testing.assert_close(output.token_sums["policy/loss"].item(), float(Fraction(case["loss_sum"])))
    assert output.token_sums["policy/clip_ratio"].item() == case["num_clipped"]
    torch.testing.assert_close(logprobs.grad, exact(case["gradient"]))


def test_gradient_equals_central_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    behaviour = -3 * torch.rand(64, generator=generator, dtype=torch.float64)
    noise = 0.5 * torch.randn(64, generator=generator, dtype=torch.float64)
    advantages = torch.randn(64, generator=generator, dtype=torch.float64)
    loss = PpoLoss(PpoOptions(clip_low=0.1, clip_high=0.3))

    def value(logprobs: Tensor) -> Tensor:
        return loss(token_batch(logprobs, behaviour, advantages)).loss

    logprobs = (behaviour + noise).requires_grad_()
    (gradient,) = torch.autograd.grad(value(logprobs), logprobs)
    step = 1e-6
    for index in range(64):
        shift = torch.zeros_like(behaviour)
        shift[index] = step
        with torch.no_grad():
            difference = (value(logprobs + shift) - value(logprobs - shift)) / (2 * step)
        assert gradient[index].item() == pytest.approx(difference.item(), abs=1e-8)


def test_kl_is_the_mean_of_behaviour_minus_new() -> None:
    behaviour, logprobs = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.75])
    sums = PpoLoss(PpoOptions())(token_batch(logprobs, behaviour, torch.ones(2))).token_sums
    assert sums["policy/kl"].item() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("new", "behaviour"),
    [(-1000.0, 0.0), (0.0, -1000.0), (-INF, -INF), (-INF, -1.0), (-1.0, -INF), (NAN, -1.0)],
)
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_extreme_log_probs_give_finite_loss_and_gradient(
    new: float, behaviour: float, advantage: float
) -> None:
    logprobs = torch.tensor([new, -1.0], requires_grad=True)
    output = PpoLoss(PpoOptions())(
        token_batch(logprobs, torch.tensor([behaviour, -1.0]), torch.tensor([advantage, 1.0]))
    )
    output.loss.backward()
    assert logprobs.grad is not None
    assert torch.isfinite(output.loss)
    assert all(torch.isfinite(value) for value in output.token_sums.values())
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[1] == -0.5, "the token beside it must not notice"


def test_no_tokens_give_zero_with_a_gradient_path() -> None:
    logprobs = torch.zeros(0, requires_grad=True)
    output = PpoLoss(PpoOptions())(token_batch(logprobs, torch.zeros(0), torch.zeros(0), num_tokens=5))
    output.loss.backward()
    assert output.loss.item() == 0.0
    assert set(output.token_sums) == {"policy/loss", "policy/clip_ratio", "policy/kl"}


def test_micro_batches_add_up_to_the_whole() -> None:
    generator = torch.Generator().manual_seed(1)
    logprobs, behaviour, advantages = (
        torch.randn(10, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    loss = PpoLoss(PpoOptions())
    whole = loss(token_batch(logprobs, behaviour, advantages, 10)).loss
    parts = [
        loss(token_batch(logprobs[part], behaviour[part], advantages[part], 10)).loss
        for part in (slice(0, 3), slice(3, 4), slice(4, 10))
    ]
    torch.testing.assert_close(sum(parts), whole)
