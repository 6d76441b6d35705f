"""What is left of a run that was ended or killed: its folder, its last good checkpoint, the loop's state in it.

`find_rest` only looks. `take_up` brings the folder back to that checkpoint: what was written after it
belongs to steps that will be done again, so that no step is told twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from molt_core.api.findings import error
from molt_core.api.run_options import RunOptions
from molt_core.config.parse import Configuration
from molt_core.config.tables import to_toml
from molt_core.errors import ConfigError, PreflightError
from molt_core.launch import checkpoint
from molt_core.loop.state import LoopState
from molt_core.plan.changes import Change
from molt_core.plan.plan import Plan
from molt_core.report.json_lines import cut
from molt_core.report.run_folder import RunFolder


@frozen(kw_only=True)
class Rest:
    folder: RunFolder
    checkpoint: Path
    """Folder of the checkpoint; not there if the run has none and begins again."""
    state: LoopState | None
    """None: the run has no checkpoint."""
    changes: tuple[Change, ...]
    """Between the plan that the run had and the one that it has now."""
    notes: tuple[str, ...]
    """What the user should know."""

    @property
    def step(self) -> int:
        return 0 if self.state is None else self.state.step


def find_rest(folder: RunFolder, changes: tuple[Change, ...]) -> Rest:
    """Look for the last good checkpoint.

    Raises:
        ConfigError: there are checkpoints and all of them are damaged, or of another version.
    """
    found = checkpoint.find(folder.checkpoints)
    if found.folder is None and found.damaged:
        raise ConfigError(
            [
                error(
                    "M603",
                    f"every checkpoint in {folder.checkpoints} is damaged: {'; '.join(found.damaged)}",
                    fix="restore one from a backup; or a new run: molt run RUN/config.toml --run-name NAME",
                )
            ]
        )
    notes = [f"changed: {change}" for change in changes]
    notes += [f"damaged and passed over: {wrong}" for wrong in found.damaged]
    if found.folder is None:
        notes.append("there is no checkpoint yet: the run begins again")
        return Rest(folder=folder, checkpoint=folder.latest, state=None, changes=changes, notes=tuple(notes))
    state = LoopState.from_json(found.state)
    notes.append(f"going on after step {state.step}, from {found.folder}")
    return Rest(folder=folder, checkpoint=found.folder, state=state, changes=changes, notes=tuple(notes))


def is_over(rest: Rest, before: RunOptions, now: RunOptions) -> bool:
    """Whether there is nothing left to do.

    Raises:
        ConfigError: fewer steps are asked for than were done.
    """
    state = rest.state
    if state is None:
        return False
    if now.steps < state.step:
        message = f"steps is {now.steps}, but {state.step} are done"
        raise ConfigError([error("M604", message, fix=f"--steps {2 * state.step}")])
    if state.outcome == "stopped_early":
        return now.stop_at_reward == before.stop_at_reward
    return state.outcome == "done" and now.steps == state.step


def take_up(rest: Rest, configuration: Configuration, plan: Plan) -> None:
    """Bring the folder to the checkpoint, and write down what has changed.

    Raises:
        PreflightError: it can't be written.
    """
    try:
        _cut_back(rest)
        if rest.changes:
            rest.folder.write(plan_json=plan.to_json(), config_toml=to_toml(configuration))
    except OSError as failure:
        raise PreflightError(f"run folder {str(rest.folder.path)!r} can't be written: {failure}") from failure


def _cut_back(rest: Rest) -> None:
    """Take out of the folder what is newer than the checkpoint."""
    folder, step = rest.folder, rest.step
    if rest.state is not None:
        checkpoint.set_aside(folder.checkpoints, rest.checkpoint)
    for unfinished in folder.checkpoints.glob(".step_*"):
        shutil.rmtree(unfinished)
    for batch in folder.rollouts.glob("step_*"):
        if rest.state is None or int(batch.name.removeprefix("step_").partition(".")[0]) > step:
            batch.unlink()
    evaluated_step = None if rest.state is None else rest.state.evaluated_step

    def is_metric(record: Mapping[str, Any]) -> bool:
        # lines of evaluations have a version; that of this step may have ended after the checkpoint was made
        is_late = "version" in record and record["step"] == step and evaluated_step != step
        return rest.state is not None and bool(record["step"] <= step) and not is_late

    seen: set[int] = set()

    def is_booked(record: Mapping[str, Any]) -> bool:
        # a process that ended in order wrote a second line for its last step, with what it gave up
        first = record["step"] not in seen
        seen.add(record["step"])
        return first and 0 < record["step"] <= step

    cut(folder.metrics, is_metric)
    cut(folder.ledger, is_booked)
