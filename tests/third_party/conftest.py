"""Two packages of a stranger, one of them broken, installed by pip where only subprocesses see them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGES = ("molt-plugin-acme", "molt-plugin-broken")
Molt = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def strangers_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables for a subprocess in which both packages are installed."""
    site = tmp_path_factory.mktemp("strangers") / "site-packages"
    sources = [str(Path(__file__).parent / name) for name in PACKAGES]
    flags = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *flags, "--target", str(site), *sources], check=True
    )
    return os.environ | {"PYTHONPATH": str(site)}


@pytest.fixture
def molt(strangers_env: dict[str, str], tmp_path: Path) -> Molt:
    """Run the command `molt` as a user would, in an empty folder, with both packages installed."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("molt")), *words]
        return subprocess.run(
            command, env=strangers_env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    return run
