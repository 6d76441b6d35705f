"""Recorded batches trained once more, without engine or environment: does the same come of them?

Begins at the checkpoint before the first step that is asked for, or at the model; steps in
between are trained, too, because the weights come from them. Nothing in the run folder is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from molt_core.api.executor import Executor, Handle
from molt_core.api.findings import error
from molt_core.api.trainer import StepResult
from molt_core.errors import ConfigError
from molt_core.launch import checkpoint
from molt_core.launch.calls import all_of, within
from molt_core.launch.prepared_model import PreparedModel
from molt_core.launch.record import Outcome, batch_file, read_outcome, recorded_steps
from molt_core.launch.remote import PUBLISH_TIMEOUT_S, TRAIN_TIMEOUT_S
from molt_core.launch.starting import start_ranks
from molt_core.launch.trainer_host import PublishedWeights
from molt_core.plan.plan import Plan
from molt_core.report.run_folder import RunFolder

COMPARED = {"loss": "policy/loss", "grad norm": "policy/grad_norm"}


def recorded(folder: RunFolder, first: int | None, last: int | None) -> range:
    """The steps to report.

    Raises:
        ConfigError: none was recorded, or not all of these.
    """
    there = recorded_steps(folder.rollouts)
    if not there:
        message = f"{folder.path} holds no recorded steps"
        raise ConfigError([error("M605", message, fix="molt run ... --record keeps every batch")])
    wanted = range(there[0] if first is None else first, (there[-1] if last is None else last) + 1)
    missing = sorted(set(wanted) - set(there))
    if missing or not wanted:
        message = (
            f"steps {wanted.start} to {wanted.stop - 1} are asked for; recorded are {there[0]} to {there[-1]}"
        )
        if missing:
            message += f", without {missing[0]}"
        raise ConfigError([error("M605", message)])
    return wanted


async def replay(
    plan: Plan, model: PreparedModel, folder: RunFolder, steps: range, show: Callable[[str], None]
) -> list[int]:
    """Train the recorded steps again. Returns those of which something differs.

    Raises:
        ConfigError: a step in between was not recorded, or by another number of ranks.
    """
    found = checkpoint.find(folder.checkpoints, before=steps.start)
    start = 0 if found.folder is None else int(found.state["step"])
    outcomes = [read_outcome(folder.rollouts, step) for step in range(start + 1, steps.stop)]
    executor: Executor = plan.one("executors").build(plan.run_options())
    different = []
    try:
        await executor.start(plan.packages)
        ranks = await start_ranks(executor, plan, model)
        if found.folder is not None:
            state = found.folder / checkpoint.TRAINER_STATE
            await all_of(within(TRAIN_TIMEOUT_S, rank, "load", state) for rank in ranks)
        show(f"beginning {'with the model' if found.folder is None else f'after step {start}'}")
        for then in outcomes:
            now = await _again(folder, ranks, then)
            wrong = list(_differences(then, now))
            if then.step in steps:
                told = "; ".join(wrong) or "loss, gradient norm and weights are equal"
                show(f"step {then.step}: {told}")
                different += [then.step] if wrong else []
    finally:
        await executor.stop()
    return different


async def _again(folder: RunFolder, ranks: Sequence[Handle], then: Outcome) -> Outcome:
    paths = [batch_file(folder.rollouts, then.step, rank) for rank in range(len(ranks))]
    surplus = batch_file(folder.rollouts, then.step, len(ranks))
    if surplus.exists() or not all(map(Path.exists, paths)):
        message = f"step {then.step} was not trained by {len(ranks)} ranks, as the plan says"
        raise ConfigError([error("M605", message)])
    results: list[StepResult] = await all_of(
        within(TRAIN_TIMEOUT_S, rank, "replay", path) for rank, path in zip(ranks, paths, strict=True)
    )
    weights = ""
    if results[0].applied:
        written: list[PublishedWeights | None] = await all_of(
            within(PUBLISH_TIMEOUT_S, rank, "publish", then.version, False, True) for rank in ranks
        )
        weights = next(each.digest for each in written if each is not None)
    return Outcome(
        step=then.step, version=then.version, applied=results[0].applied, metrics=results[0].metrics, weights=weights
    )  # fmt: skip


def _differences(then: Outcome, now: Outcome) -> Iterator[str]:
    for label, name in COMPARED.items():
        before, after = then.metrics.get(name, math.nan), now.metrics.get(name, math.nan)
        if before != after and not (math.isnan(before) and math.isnan(after)):
            yield f"{label} {before!r} -> {after!r}"
    if then.applied != now.applied:
        yield f"was {'applied' if then.applied else 'skipped'}, and now is not"
    elif then.weights != now.weights:
        yield f"weights {then.weights[:12]} -> {now.weights[:12]}"
