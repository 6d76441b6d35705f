"""What the losses do at the edges of float32: infinities, NaN, no tokens, huge ratios."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from molt_plugin_losses.cispo import CispoLoss
from molt_plugin_losses.correction_spec import ImportanceOptions
from molt_plugin_losses.gspo import GspoLoss
from molt_plugin_losses.importance import ImportanceCorrection
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import CispoOptions, GspoOptions, PpoOptions
from token_batches import token_batch

from molt_core.api.correction import CorrectionBatch

INF, NAN = float("inf"), float("nan")
LOSSES: dict[str, Any] = {
    "ppo": PpoLoss(PpoOptions()),
    "ppo with all terms": PpoLoss(PpoOptions(dual_clip=3.0, kl_coef=0.1, entropy_coef=0.01)),
    "gspo": GspoLoss(GspoOptions()),
    "gspo against the sampler": GspoLoss(GspoOptions(kl_coef=0.1, kl_reference="sampler")),
    "cispo": CispoLoss(CispoOptions(kl_coef=0.1, kl_form="k1")),
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
EXTREMES = [
    (-1000.0, 0.0), (0.0, -1000.0), (-INF, -INF), (-INF, -1.0), (-1.0, -INF), (NAN, -1.0), (NAN, NAN),
]  # fmt: skip


def combinations() -> list[Any]:
    ratio = [("token", "mask"), ("token", "clip"), ("token", "trunc"), ("seq", "mask"), ("geo", "mask")]
    made = [
        ImportanceCorrection(ImportanceOptions(level=level, gate="ratio", mode=mode)) for level, mode in ratio
    ]
    return made + [
        ImportanceCorrection(ImportanceOptions(level=level, gate=gate, threshold=(0.1,)))
        for level in ("token", "seq")
        for gate in ("binary_kl", "tv")
    ]


@each_loss
@pytest.mark.parametrize(("new", "behaviour"), EXTREMES)
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_extreme_log_probs_give_finite_loss_and_gradient(
    loss: Any, new: float, behaviour: float, advantage: float
) -> None:
    logprobs = torch.tensor([new, -1.0], requires_grad=True)
    tokens = token_batch(
        logprobs, torch.tensor([behaviour, -1.0]), torch.tensor([advantage, 1.0]),
        reference_logprobs=torch.tensor([behaviour, -1.0]),
        rollout_log_ratio=torch.tensor([new - behaviour, 0.0]),
    )  # fmt: skip
    output = loss(tokens)
    output.loss.backward()
    assert logprobs.grad is not None
    assert torch.isfinite(output.loss)
    assert all(torch.isfinite(value) for value in output.token_sums.values())
    assert torch.isfinite(logprobs.grad).all()
    beside = token_batch(
        kept := torch.tensor([-1.0], requires_grad=True), torch.tensor([-1.0]), torch.tensor([1.0]),
        reference_logprobs=torch.tensor([-1.0]), window=tokens.window,
    )  # fmt: skip
    loss(beside).loss.backward()
    assert logprobs.grad[1] == kept.grad[0], "the token beside it must not notice"


@each_loss
def test_no_tokens_give_zero_with_a_gradient_path(loss: Any) -> None:
    logprobs = torch.zeros(0, requires_grad=True)
    output = loss(token_batch(logprobs, torch.zeros(0), torch.zeros(0), reference_logprobs=torch.zeros(0)))
    output.loss.backward()
    assert output.loss.item() == 0.0
    assert all(value == 0 for value in output.token_sums.values())


@each_loss
@pytest.mark.parametrize(("new", "behaviour"), EXTREMES)
def test_all_left_out_is_zero_and_leaves_only_kl_and_entropy_to_the_gradient(
    loss: Any, new: float, behaviour: float
) -> None:
    logprobs = torch.tensor([new, new], requires_grad=True)
    sampled = torch.tensor([behaviour, behaviour])
    tokens = token_batch(
        logprobs, sampled, torch.tensor([1.0, -1.0]), weights=torch.zeros(2), reference_logprobs=sampled
    )
    output = loss(tokens)
    output.loss.backward()
    assert output.token_sums["policy/loss"] == 0.0
    assert torch.isfinite(output.loss)
    assert torch.isfinite(logprobs.grad).all()
    if loss.options.kl_coef == 0:
        assert output.loss.item() == 0.0
        assert (logprobs.grad == 0).all()


@pytest.mark.parametrize("correction", combinations())
@pytest.mark.parametrize(("new", "behaviour"), EXTREMES)
def test_corrections_are_finite_and_touch_only_the_rollout_that_is_extreme(
    correction: Any, new: float, behaviour: float
) -> None:
    batch = CorrectionBatch(
        logprobs=torch.tensor([new, -1.0, -2.0]),
        behaviour_logprobs=torch.tensor([behaviour, -1.0, -2.0]),
        rollout_index=torch.tensor([0, 0, 1]),
    )
    made = correction.weights(batch)
    assert torch.isfinite(made.weights).all()
    assert (made.weights >= 0).all()
    assert (made.weights[2], bool(made.kept[2])) == (1.0, True)
    assert not made.weights.requires_grad


@pytest.mark.parametrize("correction", combinations())
def test_corrections_of_no_tokens_are_empty(correction: Any) -> None:
    nothing = torch.zeros(0)
    made = correction.weights(
        CorrectionBatch(
            logprobs=nothing, behaviour_logprobs=nothing, rollout_index=torch.zeros(0, dtype=torch.int64)
        )
    )
    assert made.weights.shape == made.kept.shape == (0,)


def test_cispo_takes_a_token_that_became_impossible_for_very_unlikely_and_a_missing_one_for_nothing() -> None:
    logprobs = torch.tensor([-INF, NAN, -2.0], requires_grad=True)
    sums = CispoLoss(CispoOptions())(token_batch(logprobs, logprobs.detach(), torch.ones(3))).token_sums
    assert sums["policy/loss"].item() == pytest.approx(1e4 + 0.0 + 2.0)


def test_kl_is_the_mean_of_behaviour_minus_new() -> None:
    behaviour, logprobs = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.75])
    sums = PpoLoss(PpoOptions())(token_batch(logprobs, behaviour, torch.ones(2))).token_sums
    assert sums["policy/kl"].item() == pytest.approx(0.25)
