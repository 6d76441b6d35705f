"""The environments are what was pinned, or say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harnesses.install import NPM, PINS, bin_folder


def test_every_package_is_pinned_exactly() -> None:
    lines = [line for path in PINS.glob("*.txt") for line in path.read_text("utf-8").splitlines()]
    packages = [line for line in lines if not line.startswith(("#", "--no-binary="))]
    assert not [line for line in packages if not re.fullmatch(r"[\w.-]+==[\w.]+", line)]
    assert all(re.fullmatch(r".+@\d+\.\d+\.\d+", spec) for spec in NPM.values())


def test_what_is_not_installed_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLT_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="smolagents is not installed.*make test-harnesses"):
        bin_folder("smolagents")


def test_other_pins_are_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_folder("smolagents")
    (tmp_path / "smolagents.txt").write_text("smolagents==0.1.0\n")
    monkeypatch.setattr("tests.harnesses.install.PINS", tmp_path)
    with pytest.raises(FileNotFoundError, match="not as pinned"):
        bin_folder("smolagents")
