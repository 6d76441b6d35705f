"""Findings and plans as text."""

from __future__ import annotations

from molt_core.api.findings import Finding, Source, error
from molt_core.plan.check import examine
from molt_core.plan.plan import freeze
from molt_core.plan.show import closing_line, show_findings, show_parts, show_plan
from molt_core.plugins.scan import Scan

ERROR = error(
    "M302", "temperature must be > 0", Source("temperature = 0", "--temperature"), fix="--temperature 1"
)
WARNING = Finding("warning", "M311", "idle ranks")


def test_layout_of_a_finding() -> None:
    assert show_findings([ERROR], colour=False).splitlines() == [
        "error M302  temperature must be > 0",
        "        because  temperature = 0  (--temperature)",
        "        fix      --temperature 1",
        "1 error; nothing was started.",
    ]


def test_closing_line_counts() -> None:
    assert closing_line([ERROR, ERROR, WARNING]) == "2 errors, 1 warning; nothing was started."
    assert closing_line([WARNING]) == "1 warning."
    assert closing_line([]) == "no findings."


def test_colour_only_when_asked_for_or_on_a_terminal() -> None:
    assert "\033[31merror M302\033[0m" in show_findings([ERROR], colour=True)
    assert "\033" not in show_findings([ERROR])


def test_plan_and_parts_name_distribution_and_version(stand_ins: Scan) -> None:
    view = examine(["--model", "tiny", "--env", "arithmetic"], stand_ins).view
    assert "molt-plugin-estimators 0.1.0" in show_parts(view)
    text = show_plan(freeze(view))
    assert "group_size = 8" in text
    assert "whiten=true" in text
    assert "partial = true" in text
    assert "None" not in text
    assert freeze(view).digest[:12] in text
