"""Each estimator against values from exact arithmetic (golden/*.json, made by exact_arithmetic.py)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_estimator import ESTIMATORS, make

from molt_core.api.estimator import FloatVector, RewardBatch, TokenRollouts

FOLDER = Path(__file__).with_name("golden")
WORDS = ("kl_form", "kl_reference")


def of(name: str) -> Any:
    cases = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert all(case["source"] for case in cases)
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["name"])


def exact(texts: list[str]) -> FloatVector:
    return np.array([float(Fraction(text)) for text in texts])


@of("rollouts")
def test_rollouts(case: dict[str, Any]) -> None:
    batch = RewardBatch(
        rewards=exact(case["rewards"]),
        groups=np.array(case["groups"]),
        num_tokens=np.array(case["num_tokens"]),
    )
    found = make(case["estimator"]).advantages(batch)
    np.testing.assert_allclose(found, exact(case["expected"]), rtol=1e-12, atol=1e-13)


@of("tokens")
def test_tokens(case: dict[str, Any]) -> None:
    options = {
        name: float(Fraction(value)) if isinstance(value, str) and name not in WORDS else value
        for name, value in case["options"].items()
    }
    rollouts = TokenRollouts(
        starts=np.array(case["starts"]),
        rewards=exact(case["rewards"]),
        reference_log_ratio=np.log(exact(case["ratios"])),
        sampler_log_ratio=np.log(exact(case["sampler_ratios"])),
        values=exact(case["values"]),
    )
    found = make(case["estimator"], **options).token_advantages(rollouts, lambda vector: vector)
    np.testing.assert_allclose(found.advantages, exact(case["expected"]), rtol=1e-12, atol=1e-13)
    if case["returns"] is None:
        assert found.returns is None
    else:
        np.testing.assert_allclose(found.returns, exact(case["returns"]), rtol=1e-12, atol=1e-13)


def test_every_estimator_has_cases() -> None:
    names = {
        case["estimator"]
        for path in FOLDER.glob("*.json")
        for case in json.loads(path.read_text(encoding="utf-8"))
    }
    assert names == set(ESTIMATORS)


def test_values_a_reader_can_check_by_head() -> None:
    ones = np.ones(4, int)
    one_in_four = RewardBatch(rewards=np.array([1.0, 0, 0, 0]), groups=0 * ones, num_tokens=ones)
    np.testing.assert_allclose(make("dr_grpo").advantages(one_in_four), [0.75, -0.25, -0.25, -0.25])
    np.testing.assert_allclose(make("grpo").advantages(one_in_four), [1.5, -0.5, -0.5, -0.5])
    np.testing.assert_allclose(make("rloo").advantages(one_in_four), [1, -1 / 3, -1 / 3, -1 / 3])
    pair = RewardBatch(rewards=np.array([2.0, -1]), groups=np.arange(2), num_tokens=np.full(2, 3))
    np.testing.assert_allclose(make("reinforce++").advantages(pair), [1, -1])
    np.testing.assert_allclose(make("flash_reinforce").advantages(pair), [1.5, -1.5])
