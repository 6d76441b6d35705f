"""What training and evaluation begin with: a run folder, a console, and the model on disk."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from molt_core.api.findings import Finding
from molt_core.config.parse import Configuration
from molt_core.config.tables import to_toml
from molt_core.launch.prepared_model import PreparedModel, prepare_model
from molt_core.plan.plan import Plan
from molt_core.report.console import Console
from molt_core.report.run_folder import RunFolder, default_run_name


@frozen
class Opened:
    folder: RunFolder
    console: Console
    model: PreparedModel


def open_run(
    configuration: Configuration, plan: Plan, findings: Sequence[Finding], suffix: str, again: RunFolder | None = None,
) -> Opened:  # fmt: skip
    """Make the run folder, show the findings, prepare the model.

    Args:
        suffix: ends a run name that was not given, after the model's.
        again: folder of an earlier run, which is used as it is.

    Raises:
        ConfigError: the run folder exists.
        PreflightError: the folder or the model can't be had.
    """
    options = configuration.run
    name = options.run_name or default_run_name(options.model, suffix)
    folder = again or RunFolder.create(options.output_dir, name)
    if again is None:
        folder.write(plan_json=plan.to_json(), config_toml=to_toml(configuration))
    console = Console(plan.to_dict(), folder.path)
    for finding in findings:
        console.note(f"{finding.level}: {finding.message}")
    is_made = "models" in plan.parts
    made_here = " (a packaged one is made at its first use, in half a minute)" if is_made else ""
    console.note(f"preparing the model{made_here}")
    model = prepare_model(plan)
    console.note(f"starting processes ({plan.one('executors').name})")
    return Opened(folder, console, model)
