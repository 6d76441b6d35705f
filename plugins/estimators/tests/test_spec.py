"""Entry points, names and lightness of the specs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution

import pytest

from molt_core.api.spec import EstimatorSpec

ENTRY_POINTS = {point.name: point for point in distribution("molt-plugin-estimators").entry_points}


GROUPED = {"reinforce++-baseline", "grpo", "dr_grpo", "rloo"}


def test_the_names_of_the_field_are_registered() -> None:
    assert set(ENTRY_POINTS) == GROUPED | {"reinforce++", "flash_reinforce", "gae", "on_policy_distill"}
    assert {point.group for point in ENTRY_POINTS.values()} == {"molt_core.estimators"}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_entry_point_leads_to_a_spec_whose_factory_builds_an_estimator(name: str) -> None:
    spec = ENTRY_POINTS[name].load()
    assert isinstance(spec, EstimatorSpec)
    assert spec.name == name
    assert spec.needs_groups == (name in GROUPED)
    module, _, attribute = spec.factory.partition(":")
    factory = getattr(__import__(module, fromlist=[attribute]), attribute)
    assert callable(factory(spec.options()).advantages)


def test_the_spec_module_does_not_import_numpy() -> None:
    code = "import sys, molt_plugin_estimators.spec; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("eps", [0.0, -1.0, float("nan")])
def test_eps_that_is_not_positive_is_refused(eps: float) -> None:
    with pytest.raises(ValueError, match="must be > 0"):
        ENTRY_POINTS["grpo"].load().options(eps=eps)
