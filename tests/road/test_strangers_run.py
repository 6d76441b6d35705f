"""A stranger's packages, installed by pip, used by `molt run` like our own."""

from __future__ import annotations

import json

import pytest

from tests.road.conftest import EMBEDDED
from tests.third_party.conftest import strangers_env

pytestmark = pytest.mark.real
__all__ = ["strangers_env"]


def test_a_run_uses_the_estimator_and_environment_of_a_stranger(start, strangers_env):
    run = start(
        "--estimator", "acme-rank", "--env", "acme-parity", *EMBEDDED, "--steps", "2", env=strangers_env
    )
    code, output = run.wait()

    assert code == 0, output
    parts = json.loads((run.folder / "plan.json").read_text())["parts"]
    assert [(parts[slot][0]["dist"], parts[slot][0]["name"]) for slot in ("estimators", "envs")] == [
        ("molt-plugin-acme", "acme-rank"),
        ("molt-plugin-acme", "acme-parity"),
    ]
    assert len(run.steps()) == 2
