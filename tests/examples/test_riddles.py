"""The third-party package under examples/: installed by pip, chosen by name, its own tests pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "molt-plugin-riddles"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    site = tmp_path_factory.mktemp("riddles") / "site-packages"
    flags = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *flags, "--target", str(site), str(PACKAGE)]
    subprocess.run(command, check=True)
    return os.environ | {"PYTHONPATH": str(site)}


def run(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_found_by_name_with_its_options_and_its_run_is_sound(environment: dict[str, str]) -> None:
    molt = str(Path(sys.executable).with_name("molt"))
    told = run(environment, molt, "plugins", "info", "riddles")
    assert "--agent.hint-costs float >= 0 and <= 1" in told
    assert "molt-plugin-riddles 1.0.0" in told
    checked = run(environment, molt, "check", "examples/molt-plugin-riddles/riddles.toml")
    assert "no findings" in checked


def test_its_own_tests_pass(environment: dict[str, str]) -> None:
    flags = ("-q", "-p", "no:cacheprovider", "--rootdir", str(PACKAGE), "-c", os.devnull)
    assert "3 passed" in run(environment, sys.executable, "-m", "pytest", *flags, str(PACKAGE / "tests"))
