"""Findings and plans as text for a terminal.

error M301  estimator 'grpo' compares rollouts of one prompt, but there is one per prompt
            because  group_size = 1  (--group-size)
            fix      --group-size 8
1 error; nothing was started.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from molt_core.api.findings import Finding, Level
from molt_core.api.plan_view import PlanView
from molt_core.plan.plan import Plan

_COLOURS: Final[dict[Level, str]] = {"error": "\033[31m", "warning": "\033[33m", "note": "\033[36m"}
_PLAIN: Final = "\033[0m"
_INDENT: Final = " " * 8


def show_findings(findings: Sequence[Finding], *, colour: bool | None = None) -> str:
    """All findings, and a closing line that counts them.

    Args:
        colour: None means: if the standard streams are a terminal and NO_COLOR is not set.
    """
    if colour is None:
        colour = sys.stdout.isatty() and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    lines = [line for finding in findings for line in _finding(finding, colour=colour)]
    return "\n".join([*lines, closing_line(findings)])


def closing_line(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 warning; nothing was started.`"""
    levels = [finding.level for finding in findings]
    counts = [(levels.count(level), level) for level in _COLOURS if level in levels]
    told = ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for count, level in counts) or "no findings"
    return f"{told}; nothing was started." if "error" in levels else f"{told}."


def show_parts(view: PlanView) -> str:
    """A table of the chosen plugins with distribution and version."""
    rows = [(part.spec.flag, part.spec.name, part.owner) for chosen in view.parts.values() for part in chosen]
    return table([("slot", "plugin", "from"), *rows])


def show_plan(plan: Plan) -> str:
    """The plan in short: what runs, with options, and its digest."""
    options = "\n".join(
        f"  {name} = {_value(value)}" for name, value in plan.run.items() if value is not None
    )
    parts = [
        (
            part.slot,
            part.name,
            f"{part.dist} {part.version}",
            " ".join(f"{k}={_value(v)}" for k, v in part.options.items() if v is not None),
        )
        for chosen in plan.parts.values()
        for part in chosen
    ]
    chosen = table([("slot", "plugin", "from", "options"), *parts])
    return f"run\n{options}\n\n{chosen}\n\nplan {plan.digest[:12]}, molt-core {plan.molt_version}"


def _value(value: Any) -> str:
    """As in a configuration file, but words bare."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _finding(finding: Finding, *, colour: bool) -> Iterator[str]:
    label = f"{finding.level} {finding.code}"
    yield (
        f"{_COLOURS[finding.level]}{label}{_PLAIN}  {finding.message}"
        if colour
        else f"{label}  {finding.message}"
    )
    for source in finding.because:
        yield f"{_INDENT}because  {source}"
    if finding.fix:
        yield f"{_INDENT}fix      {finding.fix}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )
