"""docs/compatibility.md says, cell by cell, what the rules say; nothing of the first party is missing from it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from molt_core.plugins.scan import scan

ROOT = Path(__file__).resolve().parents[2]


def script() -> Any:
    found = spec_from_file_location("compatibility", ROOT / "scripts" / "compatibility.py")
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    sys.modules["compatibility"] = module  # attrs looks its classes' modules up
    found.loader.exec_module(module)
    return module


SCRIPT = script()
TEXT = SCRIPT.DOCUMENT.read_text(encoding="utf-8")


def written() -> dict[tuple[str, str, str], str]:
    """(table, row, column) to the text of the cell, as it stands in the document."""
    cells = {}
    for title, section in re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE):
        lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
        for row in lines[2:]:
            cells |= {
                (title, row[0], column): cell for column, cell in zip(lines[0][1:], row[1:], strict=True)
            }
    return cells


WRITTEN = written()
CELLS = [(table.title, cell) for table in SCRIPT.tables() for cell in table.cells]


@pytest.mark.parametrize(
    ("title", "cell"), CELLS, ids=[f"{title}: {cell.row} x {cell.column}" for title, cell in CELLS]
)
def test_the_cell_is_what_a_check_finds(title: str, cell: Any) -> None:
    codes = sorted({finding.code for finding in cell.refused_by()})
    assert WRITTEN[title, cell.row, cell.column] == ("no: " + ", ".join(codes) if codes else "yes")


def test_the_document_has_these_cells_only_and_is_up_to_date() -> None:
    assert len(WRITTEN) == len(CELLS)
    assert SCRIPT.document() == TEXT, "make it again: .venv/bin/python scripts/compatibility.py"


@pytest.mark.parametrize(
    ("slot", "names"),
    [
        ("estimators", SCRIPT.ESTIMATORS),
        ("losses", SCRIPT.LOSSES),
        ("corrections", SCRIPT.CORRECTIONS),
        ("filters", [name for name, flag in SCRIPT.REWARDS.items() if flag == "--filter"]),
        ("shapers", [name for name, flag in SCRIPT.REWARDS.items() if flag == "--shaper"]),
    ],
)
def test_every_algorithm_is_in_it(slot: str, names: Iterable[str]) -> None:
    ours = {"molt-plugin-estimators", "molt-plugin-losses", "molt-plugin-shaping"}
    installed = {one.name for one in scan().candidates if one.slot == slot and one.dist in ours}
    assert installed == set(names) - {"none"}
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert [name for name in installed if f"`{name}`" not in text] == [], (
        "docs/algorithms.md says what each does"
    )
