"""Starts what the plan names, hands it to the loop, and takes it all down again.

In go a plan, a run folder and someone to tell events to. Actors are started in `starting`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from attrs import frozen

from molt_core.api.events import Event, RunStarted
from molt_core.api.run_options import RunOptions
from molt_core.api.shaping import Limits
from molt_core.api.trainer import Stateful
from molt_core.data.rows import is_file_or_hub, read_rows
from molt_core.data.tasks import EnvironmentTasks, RowTasks, Task, TaskSource
from molt_core.launch.prepared_model import PreparedModel
from molt_core.launch.record import Recorder
from molt_core.launch.remote import RemotePolicy
from molt_core.launch.resuming import Rest
from molt_core.launch.sampling import RemoteSampler
from molt_core.launch.starting import running
from molt_core.loop.controller import Controller
from molt_core.loop.evaluate import eval_tasks
from molt_core.loop.parts import LoopParts, Resumed
from molt_core.loop.state import LoopState
from molt_core.loop.stop import StopSignal
from molt_core.plan.plan import Plan
from molt_core.report.ledger import Ledger
from molt_core.report.run_folder import RunFolder


@frozen(kw_only=True)
class Tasks:
    train: TaskSource
    held_out: tuple[Task, ...]
    """The fixed prompts of every evaluation."""
    unfinished: tuple[Task, ...]
    """Of a run that is resumed, those that were not finished."""


async def run(
    plan: Plan,
    model: PreparedModel,
    folder: RunFolder,
    notify: Callable[[Event], None],
    tasks: Tasks,
    rest: Rest | None = None,
    hooks: Stateful | None = None,
) -> str:
    """Run the whole loop, or the rest of it. Returns its outcome; raises what the loop raises."""
    options = plan.run_options()
    state = None if rest is None else rest.state
    step = 0 if state is None else state.step
    stop = StopSignal()
    policy: RemotePolicy | None = None
    ledger = Ledger(folder.ledger)
    try:
        async with running(plan, model, stop, notify) as (executor, actors):
            policy = RemotePolicy(
                options,
                actors.ranks,
                actors.engines,
                folder.checkpoints,
                shares_files=executor.shares_files,
                recorder=Recorder(folder.rollouts, step) if options.record else None,
            )
            resumed = None
            if rest is not None and state is not None:
                payloads = await policy.load(rest.checkpoint, state.payloads)
                now_s = asyncio.get_running_loop().time()
                resumed = Resumed(state=state.resumed(payloads, now_s), tasks=tasks.unfinished)
            parts = LoopParts(
                sampler=RemoteSampler(actors.workers, actors.engines),
                policy=policy,
                estimator=plan.one("estimators").build(),
                needs_groups=plan.one("estimators").declares["needs_groups"],
                tasks=tasks.train,
                eval_tasks=tasks.held_out,
                eval_name=eval_name(plan),
                max_tokens=options.max_tokens,
                top_logprobs=plan.top_logprobs,
                ledger=ledger,
                notify=notify,
                hooks=hooks,
                stop=stop,
                resumed=resumed,
                group_filter=plan.optional("filters"),
                shaper=plan.optional(
                    "shapers", Limits(max_tokens=options.max_tokens, max_length=model.max_length)
                ),
            )
            controller = Controller(options, parts)
            # after that, because a hook must have what it remembered before it is told of anything
            notify(RunStarted(run_folder=folder.path, plan=plan.to_dict(), step=step))
            return await controller.run()
    finally:
        if policy is not None:
            policy.close()
        ledger.close()


def eval_name(plan: Plan) -> str:
    """`<set>` in the names of metrics: the environment, or the agent where there is none."""
    return (plan.first("envs") or plan.one("agents")).name


def task_sources(plan: Plan, state: LoopState | None = None) -> Tasks:
    """Tasks of a run, from its start or from where `state` was taken.

    Raises:
        ConfigError: they can't be read, or are not those that the state was taken with.
    """
    options: RunOptions = plan.run_options()
    train = task_source(plan, options.data, "train")
    unfinished = () if state is None else train.restore(state.tasks, state.tasks_open)
    environment = plan.first("envs")
    has_own = environment is not None and environment.declares["makes_tasks"]
    if options.eval_prompts == 0 or not (has_own or options.eval_data):
        return Tasks(train=train, held_out=(), unfinished=unfinished)
    source = task_source(plan, options.eval_data, "eval")
    return Tasks(train=train, held_out=eval_tasks(source, options.eval_prompts), unfinished=unfinished)


def task_source(plan: Plan, data: str | None, split: Literal["train", "eval"]) -> TaskSource:
    """Rows of `data`, or the environment's own tasks."""
    seed = plan.run_options().seed
    if data is not None and is_file_or_hub(data):
        return RowTasks(read_rows(data), seed=seed, split=split)
    return EnvironmentTasks(plan.one("envs").build(), split, seed=seed)
