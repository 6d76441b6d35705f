"""TRL computes what tests/independent/trl.json says: its own trainers, in a process that has it beside our packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from molt_plugin_models.tiny import Tiny

from molt_core.api.options import NoOptions
from molt_core.launch.model_process import cache_root
from tests.harnesses.install import bin_folder

pytestmark = pytest.mark.harness
HERE = Path(__file__).parent
STORED = HERE.parent / "independent" / "trl.json"


def test_the_stored_values_are_those_of_trl() -> None:
    # it needs torch and transformers, which are ours; nothing else of it is
    (packages,) = (bin_folder("trl").parent / "lib").glob("python*/site-packages")
    model = Tiny(NoOptions()).prepare(cache_root())
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "drivers/trl_values.py"), str(model)],
        env={**os.environ, "PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert_close(found, json.loads(STORED.read_text(encoding="utf-8")))


def assert_close(found: Any, wanted: Any) -> None:
    """Equal JSON, apart from rounding."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            assert_close(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)
    else:
        assert found == (pytest.approx(wanted, rel=1e-9) if isinstance(wanted, float) else wanted)
