"""Recorded batches trained once more, without engine or environment: does the same come of them?

Begins at the checkpoint before the first step that is asked for, or at the model; steps in
between are trained, too, because the weights come from them. Nothing in the run folder is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from molt_core.api.executor import Executor, Handle
from molt_core.api.findings import error
from molt_core.api.trainer import StepResult
from molt_core.errors import ConfigError
from molt_core.launch import checkpoint
from molt_core.launch.calls import all_of, within
from molt_core.launch.prepared_model import PreparedModel
from molt_core.launch.record import Outcome, num_recorded_ranks, read_outcome, recorded_steps
from molt_core.launch.remote import PUBLISH_TIMEOUT_S, TRAIN_TIMEOUT_S
from molt_core.launch.starting import start_ranks
from molt_core.launch.trainer_host import PublishedWeights
from molt_core.plan.plan import Plan
from molt_core.report.run_folder import RunFolder

TOLERANCE = 0.01
"""Relative, where the order of sums is another."""
LEAST = 0.1
"""Magnitude below which a difference is not taken relatively: losses on policy are near zero."""
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
        steps = f"steps {wanted.start} to {wanted.stop - 1} are"
        if len(wanted) == 1:
            steps = f"step {wanted.start} is"
        message = f"{steps} asked for; recorded are {there[0]} to {there[-1]}"
        if missing and missing[0] in range(there[0], there[-1]):
            message += f", without {missing[0]}"
        raise ConfigError([error("M605", message)])
    return wanted


async def replay(
    plan: Plan, model: PreparedModel, folder: RunFolder, steps: range, show: Callable[[str], None]
) -> list[int]:
    """Train the recorded steps again, by as many ranks as the plan has. Returns those of which something differs.

    Raises:
        ConfigError: a step in between was not recorded.
    """
    found = checkpoint.find(folder.checkpoints, before=steps.start)
    start = 0 if found.folder is None else int(found.state["step"])
    outcomes = [read_outcome(folder.rollouts, step) for step in range(start + 1, steps.stop)]
    num_ranks = plan.run_options().trainer_ranks
    then_ranks = {num_recorded_ranks(folder.rollouts, outcome.step) for outcome in outcomes}
    to_the_bit = then_ranks == {num_ranks}
    executor: Executor = plan.one("executors").build(plan.run_options())
    different = []
    try:
        await executor.start(plan.packages)
        ranks = await start_ranks(executor, plan, model)
        if found.folder is not None:
            state = found.folder / checkpoint.TRAINER_STATE
            await all_of(within(TRAIN_TIMEOUT_S, rank, "load", state) for rank in ranks)
        show(f"beginning {'with the model' if found.folder is None else f'after step {start}'}")
        for wrong_one in found.damaged:
            show(f"damaged and passed over: {wrong_one}")
        if not to_the_bit:
            show(
                f"trainer ranks: {', '.join(map(str, sorted(then_ranks)))} in the record, {num_ranks} now. Sums have "
                f"another order: loss and gradient norm are compared within {TOLERANCE:.0%}, weights are not"
            )
        for then in outcomes:
            now = await _again(folder, ranks, then)
            wrong = list(differences(then, now, to_the_bit=to_the_bit))
            if then.step in steps:
                equal = (
                    "loss, gradient norm and weights are equal"
                    if to_the_bit
                    else f"loss and gradient norm are equal within {TOLERANCE:.0%}"
                )
                show(f"step {then.step}: {'; '.join(wrong) or equal}")
                different += [then.step] if wrong else []
    finally:
        await executor.stop()
    return different


async def _again(folder: RunFolder, ranks: Sequence[Handle], then: Outcome) -> Outcome:
    results: list[StepResult] = await all_of(
        within(TRAIN_TIMEOUT_S, rank, "replay", folder.rollouts, then.step) for rank in ranks
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


def differences(then: Outcome, now: Outcome, *, to_the_bit: bool) -> Iterator[str]:
    """What came out differently."""
    for label, name in COMPARED.items():
        before, after = then.metrics.get(name, math.nan), now.metrics.get(name, math.nan)
        tolerance = 0.0 if to_the_bit else TOLERANCE
        close = math.isclose(before, after, rel_tol=tolerance, abs_tol=tolerance * LEAST)
        if not close and not (math.isnan(before) and math.isnan(after)):
            yield f"{label} {before!r} -> {after!r}"
    if then.applied != now.applied:
        yield f"was {'applied' if then.applied else 'skipped'}, and now is not"
    elif to_the_bit and then.weights != now.weights:
        yield f"weights {then.weights[:12]} -> {now.weights[:12]}"
