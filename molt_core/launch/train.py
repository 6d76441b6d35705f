"""One training run from a checked plan, or the rest of one: folder, observers, model, loop, report.

Returns the exit code. Everything written stays in the run folder, apart from the model cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from molt_core.api.events import Event
from molt_core.api.findings import Finding
from molt_core.config.parse import Configuration
from molt_core.launch import wire
from molt_core.launch.opening import open_run
from molt_core.launch.resuming import Rest, take_up
from molt_core.plan.plan import Plan
from molt_core.plugins.hooks import Hooks
from molt_core.report.metrics_file import MetricsFile


def train(
    configuration: Configuration, plan: Plan, findings: Sequence[Finding], rest: Rest | None = None
) -> int:
    """Run to the end. Raises what `molt_core.cli.run` and `molt_core.cli.resume` document."""
    # before anything is started or changed: data may be unreadable, or not those of the checkpoint
    tasks = wire.task_sources(plan, None if rest is None else rest.state)
    if rest is not None:
        take_up(rest, configuration, plan)
    again = None if rest is None else rest.folder
    opened = open_run(configuration, plan, findings, plan.one("estimators").name, again)
    folder, console = opened.folder, opened.console
    for note in () if rest is None else rest.notes:
        console.note(note)
    hooks = Hooks(
        (f"{part.name} ({part.dist} {part.version})", part.build(folder.path))
        for part in plan.parts.get("hooks", ())
    )
    metrics = MetricsFile(folder.metrics)

    def notify(event: Event) -> None:
        metrics.on_event(event)
        console.on_event(event)
        hooks.notify(event)

    try:
        asyncio.run(wire.run(plan, opened.model, folder, notify, tasks, rest, hooks))
    finally:
        for line in hooks.close():
            console.note(line)
        metrics.close()
        console.close()
    return 0
