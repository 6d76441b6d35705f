"""docs/findings.md lists exactly the codes that the core and the first-party plugins can report."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_documented_codes_are_those_of_the_sources() -> None:
    texts = (path.read_text() for path in sorted((ROOT / "molt_core").rglob("*.py")))
    reported = {code for text in texts for code in re.findall(r'"(M\d{3})"', text)}
    documented = re.findall(
        r"^\| (M\d{3}) \|", (ROOT / "docs" / "findings.md").read_text(), flags=re.MULTILINE
    )
    assert documented == sorted(set(documented))
    assert set(documented) == reported


def test_documented_codes_of_plugins_are_those_of_their_sources() -> None:
    texts = (path.read_text() for path in sorted(ROOT.glob("plugins/*/src/**/*.py")))
    reported = {code for text in texts for code in re.findall(r'"([A-Z]{3,}\d)"', text)}
    documented = re.findall(
        r"^\| ([A-Z]{3,}\d) \|", (ROOT / "docs" / "findings.md").read_text(), flags=re.MULTILINE
    )
    assert documented == sorted(set(documented))
    assert set(documented) == reported
