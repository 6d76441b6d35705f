"""One training run from a checked plan: folder, observers, model, loop, report.

Returns the exit code. Everything written stays in the run folder, apart from the model cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from molt_core.api.events import Event
from molt_core.api.findings import Finding
from molt_core.config.parse import Configuration
from molt_core.config.tables import to_toml
from molt_core.launch import wire
from molt_core.launch.prepared_model import prepare_model
from molt_core.plan.plan import Plan
from molt_core.plugins.hooks import Hooks
from molt_core.report.console import Console
from molt_core.report.metrics_file import MetricsFile
from molt_core.report.run_folder import RunFolder, default_run_name


def train(configuration: Configuration, plan: Plan, findings: Sequence[Finding]) -> int:
    """Run to the end. Raises what `molt_core.cli.run` documents."""
    options = configuration.run
    name = options.run_name or default_run_name(options.model, plan.one("estimators").name)
    folder = RunFolder.create(options.output_dir, name)
    folder.write(plan_json=plan.to_json(), config_toml=to_toml(configuration))
    console = Console(plan.to_dict(), folder.path)
    for finding in findings:
        console.note(f"{finding.level}: {finding.message}")
    made_here = (
        " (a packaged one is made at its first use, in half a minute)" if "models" in plan.parts else ""
    )
    console.note(f"preparing the model{made_here}")
    model = prepare_model(plan)
    hooks = Hooks(
        (f"{part.name} ({part.dist} {part.version})", part.build(folder.path))
        for part in plan.parts.get("hooks", ())
    )
    metrics = MetricsFile(folder.metrics)

    def notify(event: Event) -> None:
        metrics.on_event(event)
        console.on_event(event)
        hooks.notify(event)

    console.note(f"starting processes ({plan.one('executors').name})")
    try:
        asyncio.run(wire.run(plan, model, folder, notify))
    finally:
        for line in hooks.close():
            console.note(line)
        metrics.close()
        console.close()
    return 0
