"""Every loss, aggregation, correction and KL form against exact values (golden/*.json, made by exact_losses.py)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import fields_dict
from molt_plugin_losses.cispo import CispoLoss
from molt_plugin_losses.correction_spec import ImportanceOptions
from molt_plugin_losses.gspo import GspoLoss
from molt_plugin_losses.importance import ImportanceCorrection
from molt_plugin_losses.kl import KlCoefficient, kl_estimate
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import CispoOptions, GspoOptions, PpoOptions
from token_batches import token_batch
from torch import Tensor

from molt_core.api.correction import CorrectionBatch
from molt_core.experience.batch import Window

FOLDER = Path(__file__).with_name("golden")
LOSSES: dict[str, Any] = {
    "ppo": (PpoLoss, PpoOptions), "gspo": (GspoLoss, GspoOptions), "cispo": (CispoLoss, CispoOptions),
}  # fmt: skip


def cases(name: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert all(case["source"] for case in made)
    return made


def of(name: str) -> Any:
    return pytest.mark.parametrize("case", cases(name), ids=lambda case: case["name"])


def number(text: str) -> float:
    return float(Fraction(text))


def exact(texts: list[str]) -> Tensor:
    return torch.tensor(list(map(number, texts)), dtype=torch.float64)


def loss_of(case: dict[str, Any]) -> Any:
    kind, options = LOSSES[case["loss"]]
    words = ("aggregation", "kl_form", "kl_reference")
    made = {name: text if name in words else number(text) for name, text in case["options"].items()}
    assert made.keys() <= fields_dict(options).keys()
    return kind(options(**made))


@of("losses")
def test_loss_and_gradient(case: dict[str, Any]) -> None:
    logprobs = exact(case["logprobs"]).requires_grad_()
    entropies = exact(case["entropies"]).requires_grad_()
    behaviour = logprobs.detach() - exact(case["ratios"]).log()
    tokens = token_batch(
        logprobs, behaviour, exact(case["advantages"]), weights=exact(case["weights"]), entropy=entropies,
        rollout_log_ratio=exact(case["rollout_ratios"]).log(),
        reference_logprobs=logprobs.detach() - exact(case["reference_ratios"]).log(),
        rollout_tokens=torch.tensor(case["rollout_tokens"], dtype=torch.float64),
        group_tokens=torch.tensor(case["group_tokens"], dtype=torch.float64),
        rollout_index=torch.tensor(case["rollout"]), group_index=torch.tensor(case["group"]),
        window=Window(**case["window"]),
    )  # fmt: skip
    output = loss_of(case)(tokens)
    output.loss.backward()
    expected = case["expected"]
    torch.testing.assert_close(output.loss.item(), number(expected["loss"]))
    torch.testing.assert_close(output.token_sums["policy/loss"].item(), number(expected["terms"]))
    assert output.token_sums["policy/clip_ratio"].item() == expected["num_clipped"]
    torch.testing.assert_close(logprobs.grad, exact(expected["gradient"]))
    penalty = output.token_sums.get("policy/kl_penalty", torch.zeros(()))
    torch.testing.assert_close(penalty.item(), number(expected["kl"]))
    of_entropy = entropies.grad if entropies.grad is not None else torch.zeros_like(entropies)
    torch.testing.assert_close(of_entropy, torch.full_like(entropies, number(expected["entropy_gradient"])))


@of("corrections")
def test_correction(case: dict[str, Any]) -> None:
    options = case["options"]
    made = ImportanceCorrection(
        ImportanceOptions(**options | {"threshold": tuple(map(number, options["threshold"]))})
    )
    result = made.weights(
        CorrectionBatch(
            logprobs=exact(case["current"]).log(),
            behaviour_logprobs=exact(case["behaviour"]).log(),
            rollout_index=torch.tensor(case["rollout"]),
        )
    )
    torch.testing.assert_close(result.weights, exact(case["expected"]["weights"]))
    assert result.kept.tolist() == case["expected"]["kept"]


@of("kl_forms")
def test_kl_estimate_and_its_gradient(case: dict[str, Any]) -> None:
    logprobs = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    reference = logprobs.detach() - exact([case["ratio"]]).log()
    estimate = kl_estimate(
        logprobs, reference, case["form"], sampled_by_reference=case["sampled_by_reference"]
    )
    estimate.sum().backward()
    torch.testing.assert_close(estimate.detach(), exact([case["expected"]["value"]]))
    torch.testing.assert_close(logprobs.grad, exact([case["expected"]["gradient"]]))


@of("steering")
def test_steered_coefficient(case: dict[str, Any]) -> None:
    coefficient = KlCoefficient(number(case["start"]), number(case["target"]), case["horizon"])
    found = []
    for num_rollouts in case["num_rollouts"]:
        coefficient.observe(number(case["kl"]), num_rollouts)
        found.append(coefficient.value)
    assert found == pytest.approx(list(map(number, case["expected"])), rel=1e-12)


def test_a_fixed_coefficient_stays() -> None:
    coefficient = KlCoefficient(0.1, None, 100.0)
    coefficient.observe(5.0, 1000)
    assert coefficient.value == 0.1


def test_there_are_enough_cases() -> None:
    assert sum(len(cases(path.stem)) for path in FOLDER.glob("*.json")) >= 120
