"""Entry point and lightness of the trainer's spec."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution

import pytest
from molt_plugin_fsdp.spec import FSDP, FsdpOptions


def test_fsdp_is_registered_under_its_name() -> None:
    (point,) = distribution("molt-plugin-fsdp").entry_points
    assert (point.group, point.name) == ("molt_core.trainers", "fsdp")
    assert point.load() is FSDP


def test_the_spec_module_does_not_import_torch() -> None:
    code = "import sys, molt_plugin_fsdp.spec; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "bad", [{"max_grad_norm": 0.0}, {"logit_rows": 0}, {"beta2": 1.0}, {"warmup_steps": -1}]
)
def test_options_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        FsdpOptions(**bad)
