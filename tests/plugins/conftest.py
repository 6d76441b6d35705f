"""Distributions that consist of files in a temporary folder: nothing is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

FakeDist = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on `sys.path`, empty at first."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def fake_dist(site: Path) -> FakeDist:
    """Write a distribution: metadata, entry points by group, and modules by name."""

    def write(
        name: str,
        version: str = "1.0",
        *,
        entry_points: Mapping[str, Mapping[str, str]] | None = None,
        modules: Mapping[str, str] | None = None,
        requires: Sequence[str] = (),
        folder: Path = site,
        kind: str = "dist-info",
    ) -> Path:
        info = folder / f"{name.replace('-', '_')}-{version}.{kind}"
        info.mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (info / ("METADATA" if kind == "dist-info" else "PKG-INFO")).write_text("\n".join(lines) + "\n")
        sections = [
            "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in points.items())])
            for group, points in (entry_points or {}).items()
        ]
        (info / "entry_points.txt").write_text("\n\n".join(sections) + "\n")
        for module, text in (modules or {}).items():
            (folder / f"{module}.py").write_text(text)
        return info

    return write
