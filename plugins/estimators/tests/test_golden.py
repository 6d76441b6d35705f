"""Each estimator against values from exact rational arithmetic (golden.json, made by exact_arithmetic.py)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from molt_plugin_estimators import spec
from molt_plugin_estimators.dr_grpo import DrGrpo
from molt_plugin_estimators.grpo import Grpo
from molt_plugin_estimators.reinforce_pp import ReinforcePP
from molt_plugin_estimators.reinforce_pp_baseline import ReinforcePPBaseline
from molt_plugin_estimators.rloo import Rloo

from molt_core.api.estimator import RewardBatch

CASES = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
ESTIMATORS = {
    spec.REINFORCE_PP.name: ReinforcePP(spec.ReinforceOptions()),
    spec.REINFORCE_PP_BASELINE.name: ReinforcePPBaseline(spec.WhitenOptions()),
    spec.GRPO.name: Grpo(spec.GrpoOptions()),
    spec.DR_GRPO.name: DrGrpo(spec.NoOptions()),
    spec.RLOO.name: Rloo(spec.NoOptions()),
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_equals_exact_arithmetic(case: dict[str, Any], estimator: str) -> None:
    batch = RewardBatch(
        rewards=np.array([float(Fraction(reward)) for reward in case["rewards"]]),
        groups=np.array(case["groups"]),
        num_tokens=np.array(case["num_tokens"]),
    )
    expected = np.array([float(value) for value in case[estimator]])
    np.testing.assert_allclose(ESTIMATORS[estimator].advantages(batch), expected, rtol=1e-12, atol=1e-13)


def test_values_a_reader_can_check_by_head() -> None:
    ones = np.ones(4, int)
    one_in_four = RewardBatch(rewards=np.array([1.0, 0, 0, 0]), groups=0 * ones, num_tokens=ones)
    np.testing.assert_allclose(ESTIMATORS["dr_grpo"].advantages(one_in_four), [0.75, -0.25, -0.25, -0.25])
    np.testing.assert_allclose(ESTIMATORS["grpo"].advantages(one_in_four), [1.5, -0.5, -0.5, -0.5])
    np.testing.assert_allclose(ESTIMATORS["rloo"].advantages(one_in_four), [1, -1 / 3, -1 / 3, -1 / 3])
    pair = RewardBatch(rewards=np.array([2.0, -1]), groups=np.arange(2), num_tokens=np.full(2, 3))
    np.testing.assert_allclose(ESTIMATORS["reinforce++"].advantages(pair), [1, -1])
