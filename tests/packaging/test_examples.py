"""Every example is a configuration that `molt check` accepts, from the repository root."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*.toml"))
NOT_INSTALLED = ("mini",)
"""Commands of harnesses that the examples name and `make install` does not bring."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PATH on which those commands are too."""
    folder = tmp_path_factory.mktemp("bin")
    for name in NOT_INSTALLED:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_passes_every_check(example: Path, path: str) -> None:
    command = [Path(sys.executable).with_name("molt"), "check", str(example.relative_to(ROOT))]
    answer = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(("reply", "reward"), [("", 0.0), ("12", 1.0), ("a1", 0.5), ("no", 0.0)])
def test_the_tiny_reward_is_the_share_of_digits(reply: str, reward: float) -> None:
    spec = spec_from_file_location("tiny_reward", ROOT / "examples" / "tiny_reward.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.reward_digits(reply) == reward
