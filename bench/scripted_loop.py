"""Parts of a run for bench_loop.py: an engine with a number of places, a trainer that takes its time, no model."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from molt_core.api.estimator import RewardBatch
from molt_core.api.events import Event
from molt_core.api.executor import ActorRequest
from molt_core.api.run_options import RunOptions
from molt_core.api.trainer import StepResult
from molt_core.data.tasks import EnvironmentTasks
from molt_core.experience import Outcome, RolloutSummary
from molt_core.launch.fleet import Fleet
from molt_core.loop.controller import Controller
from molt_core.loop.parts import LoopParts
from molt_core.loop.ports import Published, RankShare, RolloutRequest, Sampler
from molt_core.loop.stop import StopSignal
from molt_core.report.console import Console
from molt_core.report.ledger import Ledger
from molt_core.report.metrics_file import MetricsFile

Seconds = Callable[[int], float]
"""Of the rollout with this seed."""


class ObjectReference:
    """Stands in for ray.ObjectRef, which pickles to 230 bytes (Ray 2.60)."""

    def __init__(self) -> None:
        self.id = os.urandom(180)


def summary_of(request: RolloutRequest, oldest: int, newest: int, num_tokens: int = 500) -> RolloutSummary:
    return RolloutSummary(
        rollout_id=request.rollout_id, group_id=request.group_id, outcome=Outcome.FINISHED,
        reward=float(request.seed % 2), reason="", detail="", segment_tokens=(num_tokens + 100,),
        segment_sampled=(num_tokens,), oldest_version=oldest, newest_version=newest, info={"format": 1.0},
        prompt_text="p" * 256, reply_text="r" * 256, seconds=1.0, payload=ObjectReference(),
    )  # fmt: skip


async def fleet(handles: Sequence[Any]) -> Fleet:
    """These, as a fleet whose members never die."""

    class Given:
        async def spawn(self, request: ActorRequest) -> Any:
            return next(each for each in handles if each.name == request.name)

    async def ready(handle: Any) -> None: ...

    requests = [ActorRequest(role="workers", name=each.name, factory="-") for each in handles]
    given: Any = Given()
    made = Fleet(requests, given, prepare=ready, max_restarts=0, notify=lambda event: None)
    await made.start()
    return made


class PlacesEngine:
    """A `Sampler`: `num_places` rollouts at once, the others wait for a place; each keeps it for its seconds."""

    def __init__(self, seconds: Seconds, num_places: int) -> None:
        self.version = 0
        self.busy_s = 0.0
        self._seconds = seconds
        self._places = asyncio.Semaphore(num_places)
        self._num_running = 0
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def sample(self, request: RolloutRequest) -> RolloutSummary:
        async with self._places:
            await self._may_run.wait()
            self._num_running += 1
            self._idle.clear()
            version, seconds = self.version, self._seconds(request.seed)
            await asyncio.sleep(seconds)
            self.busy_s += seconds
            self._num_running -= 1
            if not self._num_running:
                self._idle.set()
        return summary_of(request, version, self.version)

    async def update(self, version: int, *, drain: bool) -> None:
        if drain:
            self._may_run.clear()
            await self._idle.wait()
        self.version = version
        self._may_run.set()


class TimedPolicy:
    """A `Policy` whose optimizer steps take `step_s`; shares are pickled, as they are on their way to the ranks."""

    num_ranks = 2

    def __init__(self, step_s: float, engine: PlacesEngine | None = None, *, drain: bool = False) -> None:
        self._step_s = step_s
        self._engine = engine
        self._drain = drain

    async def step(self, shares: Sequence[RankShare]) -> StepResult:
        assert all(pickle.dumps(share) for share in shares)
        await asyncio.sleep(self._step_s)
        return StepResult(applied=True, metrics={"policy/loss": 0.0})

    async def publish(self, version: int) -> Published:
        if self._engine is not None:
            await self._engine.update(version, drain=self._drain)
        return Published(num_bytes=0, gather_s=0.0, load_s=0.0)

    async def save(
        self, step: int, state: Mapping[str, Any], payloads: Mapping[str, Any]
    ) -> asyncio.Future[Path]:
        saved: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        saved.set_result(Path(f"step_{step}"))
        return saved


class Sums:
    """An environment that makes tasks without end."""

    def tasks(self, split: str, seed: int) -> Iterator[dict[str, Any]]:
        number = 0
        while True:
            yield {"prompt": f"What is {number} + {number}? Think step by step.", "answer": str(2 * number)}
            number += 1


class Centred:
    def advantages(self, batch: RewardBatch) -> Any:
        return batch.rewards - batch.rewards.mean()


def controller(
    run: RunOptions, sampler: Sampler, policy: TimedPolicy, folder: Path, watch: Callable[[Event], None]
) -> Controller:
    """The loop as `molt run` has it: ledger, metrics and console are written, the latter to nowhere."""
    metrics = MetricsFile(folder / "metrics.jsonl")
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    console = Console({"run": {"steps": run.steps, "prompts_per_step": run.prompts_per_step,
                               "group_size": run.group_size}}, folder, nowhere, columns=100)  # fmt: skip

    def notify(event: Event) -> None:
        if type(event).__name__ != "RunFinished":
            metrics.on_event(event)
            console.on_event(event)
        watch(event)

    sums: Any = Sums()
    parts = LoopParts(
        sampler=sampler, policy=policy, estimator=Centred(), needs_groups=True,
        tasks=EnvironmentTasks(sums, "train", seed=0), eval_tasks=(), eval_name="",
        max_tokens=8192, ledger=Ledger(folder / "ledger.jsonl"), notify=notify, stop=StopSignal(),
    )  # fmt: skip
    return Controller(run, parts)
