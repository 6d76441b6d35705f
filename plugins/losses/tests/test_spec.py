"""Entry point, options and lightness of the loss spec."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from molt_plugin_losses.spec import PPO, PpoOptions


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("molt_core.losses", ["cispo", "gspo", "ppo", "topk_reverse_kl"]),
        ("molt_core.corrections", ["importance", "score-centering"]),
    ],
)
def test_all_are_registered_under_their_names(group: str, names: list[str]) -> None:
    points = [point for point in entry_points(group=group) if point.dist.name == "molt-plugin-losses"]
    assert sorted(point.name for point in points) == names
    assert all(point.load().name == point.name for point in points)


def test_the_spec_module_does_not_import_torch() -> None:
    code = "import sys, molt_plugin_losses.spec; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("bad", [{"clip_low": 1.0}, {"clip_low": -0.1}, {"clip_high": float("nan")}])
def test_bounds_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        PpoOptions(**bad)


def test_it_needs_the_log_probs_of_sampling() -> None:
    assert PPO.facts(PpoOptions()).needs == {"sampled-logprobs"}
