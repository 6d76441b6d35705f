"""Some estimators learn in whole runs, one seed each; bench/bench_learning.py has all of them and three seeds."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real
BENCH = Path(__file__).parents[2] / "bench" / "bench_learning.py"


@pytest.fixture(scope="module")
def learned() -> Callable[..., Any]:
    found = spec_from_file_location("bench_learning", BENCH)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Callable[..., Any] = module.learned
    return function


@pytest.mark.parametrize("estimator", ["reinforce++", "gae", "on_policy_distill"])
def test_what_is_to_rise_rises_and_what_is_to_fall_falls(
    learned: Callable[..., Any], estimator: str, tmp_path: Path
) -> None:
    rows = learned(estimator, 0, tmp_path)
    assert rows
    for row in rows:
        assert row.kept, str(row)
