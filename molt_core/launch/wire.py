"""Starts what the plan names, hands it to the loop, and takes it all down again.

In go a plan, a run folder and someone to tell events to. The order matters: engines load while
ranks load; workers connect when engines answer; the loop begins when all are ready. However
it ends, every process that was started is stopped and awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from attrs import frozen

from molt_core.api.environment import Environment
from molt_core.api.events import Event, RunStarted
from molt_core.api.executor import ActorRequest, Executor, Handle
from molt_core.api.run_options import RunOptions
from molt_core.data.rows import is_file_or_hub, read_rows
from molt_core.data.tasks import EnvironmentTasks, RowTasks, Task, TaskSource
from molt_core.launch.actors import engine_requests, trainer_requests, worker_requests
from molt_core.launch.prepared_model import PreparedModel
from molt_core.launch.remote import RemotePolicy, RemoteSampler, all_of, within
from molt_core.loop.controller import Controller, LoopParts
from molt_core.loop.evaluate import eval_tasks
from molt_core.loop.stop import StopSignal
from molt_core.plan.plan import Plan
from molt_core.report.ledger import Ledger
from molt_core.report.run_folder import RunFolder

START_TIMEOUT_S = 900.0
"""To load a model. Generous: a first start reads weights from a cold disk."""


@frozen(kw_only=True)
class Actors:
    engines: list[Handle]
    ranks: list[Handle]
    workers: list[Handle]


async def run(
    plan: Plan,
    model: PreparedModel,
    folder: RunFolder,
    notify: Callable[[Event], None],
) -> str:
    """Run the whole loop. Returns its outcome; raises what the loop raises."""
    options = plan.run_options()
    stop = StopSignal()
    executor: Executor = plan.one("executors").build(options)
    policy: RemotePolicy | None = None
    ledger = Ledger(folder.ledger)
    try:
        await executor.start()
        with stop.on_signals():
            actors = await stop.unless_stopped(_start_actors(executor, plan, model))
            policy = RemotePolicy(
                options,
                actors.ranks,
                actors.engines,
                folder.checkpoints,
                several_nodes=executor.num_nodes > 1,
            )
            notify(RunStarted(run_folder=folder.path, plan=plan.to_dict()))
            train_tasks, held_out = task_sources(plan)
            parts = LoopParts(
                sampler=RemoteSampler(actors.workers, options.engines),
                policy=policy,
                estimator=plan.one("estimators").build(),
                needs_groups=plan.one("estimators").declares["needs_groups"],
                tasks=train_tasks,
                eval_tasks=held_out,
                eval_name=plan.one("envs").name,
                max_tokens=options.max_tokens,
                ledger=ledger,
                notify=notify,
                stop=stop,
            )
            return await Controller(options, parts).run()
    finally:
        await executor.stop()
        if policy is not None:
            policy.close()
        ledger.close()


async def _start_actors(executor: Executor, plan: Plan, model: PreparedModel) -> Actors:
    async def spawn(requests: list[ActorRequest]) -> list[Handle]:
        return await all_of(executor.spawn(request) for request in requests)

    async def start_engines() -> list[Handle]:
        engines = await spawn(engine_requests(plan, model))
        await all_of(within(START_TIMEOUT_S, engine, "start") for engine in engines)
        return engines

    async def start_ranks() -> list[Handle]:
        ranks = await spawn(trainer_requests(plan, model))
        rendezvous = await within(START_TIMEOUT_S, ranks[0], "find_rendezvous")
        await all_of(within(START_TIMEOUT_S, rank, "start", rendezvous) for rank in ranks)
        return ranks

    engines, ranks, workers = await all_of(
        [start_engines(), start_ranks(), spawn(worker_requests(plan, model))]
    )
    await all_of(within(START_TIMEOUT_S, worker, "start", engines) for worker in workers)
    return Actors(engines=engines, ranks=ranks, workers=workers)


def task_sources(plan: Plan) -> tuple[TaskSource, tuple[Task, ...]]:
    """Training tasks, and the fixed prompts of every evaluation."""
    options: RunOptions = plan.run_options()
    environment: Environment = plan.one("envs").build()
    train = _source(environment, options.data, "train", options)
    has_own = plan.one("envs").declares["makes_tasks"]
    if options.eval_prompts == 0 or not (has_own or options.eval_data):
        return train, ()
    held_out = _source(environment, options.eval_data, "eval", options)
    return train, eval_tasks(held_out, options.eval_prompts)


def _source(
    environment: Environment, data: str | None, split: Literal["train", "eval"], options: RunOptions
) -> TaskSource:
    if data is not None and is_file_or_hub(data):
        return RowTasks(read_rows(data), seed=options.seed, split=split)
    return EnvironmentTasks(environment, split, seed=options.seed)
