"""The actors of a plan: started, kept, and in the end all stopped and awaited.

Engines, ranks and workers load side by side. Engines and workers are fleets, whose members are started
again when they are lost; a lost rank ends the run, because what it was at can't be done without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from attrs import frozen

from molt_core.api.events import Event
from molt_core.api.executor import Executor, Handle
from molt_core.errors import Interrupted
from molt_core.launch.actors import engine_requests, trainer_requests, worker_requests
from molt_core.launch.calls import all_of, within
from molt_core.launch.fleet import Fleet
from molt_core.launch.prepared_model import PreparedModel
from molt_core.loop.stop import Stopped, StopSignal
from molt_core.plan.plan import Plan

START_TIMEOUT_S = 900.0
"""To load a model. Generous: a first start reads weights from a cold disk."""


@frozen(kw_only=True)
class Actors:
    engines: Fleet
    ranks: list[Handle]
    workers: Fleet


@asynccontextmanager
async def running(
    plan: Plan, model: PreparedModel, stop: StopSignal, notify: Callable[[Event], None]
) -> AsyncIterator[tuple[Executor, Actors]]:
    """The plan's actors, started and in the end stopped; signals set `stop`.

    Raises:
        Interrupted: a stop was requested, and what waited gave up.
    """
    run = plan.run_options()
    executor: Executor = plan.one("executors").build(run)
    engines, workers = (
        Fleet(requests(plan, model), executor, prepare=_start, max_restarts=run.max_restarts, notify=notify)
        for requests in (engine_requests, worker_requests)
    )

    async def start_all() -> list[Handle]:
        least = engines.start(run.min_engines)
        ranks: list[Handle]
        _, ranks, _ = await all_of([least, start_ranks(executor, plan, model), workers.start()])
        return ranks

    try:
        with stop.on_signals():
            await executor.start(plan.packages)
            ranks = await stop.unless_stopped(start_all())
            yield executor, Actors(engines=engines, ranks=ranks, workers=workers)
    except Stopped as stopped:
        raise Interrupted(f"stopped by {stopped}") from stopped
    finally:
        await engines.close()
        await workers.close()
        await executor.stop()


async def _start(actor: Handle) -> None:
    await within(START_TIMEOUT_S, actor, "start")


async def start_ranks(executor: Executor, plan: Plan, model: PreparedModel) -> list[Handle]:
    """The trainer's ranks, with the model loaded; none for a plan without a trainer."""
    if "trainers" not in plan.parts:
        return []
    ranks = await all_of(executor.spawn(request) for request in trainer_requests(plan, model))
    rendezvous = await within(START_TIMEOUT_S, ranks[0], "find_rendezvous")
    await all_of(within(START_TIMEOUT_S, rank, "start", rendezvous) for rank in ranks)
    return ranks
