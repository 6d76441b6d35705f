"""Fixtures of several folders."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from molt_core.plugins.scan import Scan


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scan:
    """Plugins that exist for tests only, and an empty working directory."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stand_ins"))
    monkeypatch.chdir(tmp_path)
    scan: Scan = importlib.import_module("molt_stand_ins").SCAN
    return scan
