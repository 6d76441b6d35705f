"""What is wrong with the rows that the run trains and evaluates on.

Reads local files, cheaply; never downloads. Which rows an environment needs, its spec says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from molt_core.api.findings import Finding, error
from molt_core.api.plan_view import PlanView
from molt_core.api.spec import AgentSpec, EnvironmentSpec
from molt_core.errors import ConfigError


def data_findings(view: PlanView) -> Iterator[Finding]:
    """Missing source, missing file, broken line, missing column, empty data."""
    specs = [part.spec for part in view.parts.get(EnvironmentSpec.slot, ())]
    spec = next((one for one in specs if isinstance(one, EnvironmentSpec)), None)
    agent = next((part.spec.name for part in view.parts.get(AgentSpec.slot, ())), None)
    who = f"environment {spec.name!r}" if spec else f"agent {agent!r}"
    if view.run.data is None and (agent or spec) and not (spec and spec.makes_tasks):
        message = f"{who} needs tasks, and makes none of its own"
        yield error("M501", message, view.source("data"), fix="--data FILE.jsonl")
    for option in ("data", "eval_data"):
        source = getattr(view.run, option)
        if source is not None:
            yield from _rows(view, option, source, spec.columns if spec else ())


def _rows(
    view: PlanView, option: str, source: str, columns: tuple[tuple[str, ...], ...]
) -> Iterator[Finding]:
    from molt_core.data.rows import check_rows

    try:
        findings: Sequence[Finding] = check_rows(source, columns)
    except ConfigError as unreadable:
        findings = unreadable.findings
    for finding in findings:
        yield attrs.evolve(finding, because=(*finding.because, view.source(option)))
