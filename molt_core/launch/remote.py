"""The loop's ports, fulfilled by actors: a sampler over workers, a policy over ranks and engines."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from molt_core.api.executor import Handle
from molt_core.api.run_options import RunOptions
from molt_core.api.trainer import StepResult
from molt_core.errors import RunError, first_cause
from molt_core.experience import RolloutSummary
from molt_core.launch import checkpoint
from molt_core.launch.record import Recorder
from molt_core.launch.trainer_host import PublishedWeights
from molt_core.loop.ports import Published, RankShare, RolloutRequest

ANSWER_MARGIN_S = 60.0
"""A worker ends a rollout at its own deadline; one that has not answered so long after it is lost."""
TRAIN_TIMEOUT_S = 3600.0
PUBLISH_TIMEOUT_S = 900.0


class RemoteSampler:
    """Sends each rollout to a worker in turn, and its requests to the engine with the fewest."""

    def __init__(self, workers: Sequence[Handle], num_engines: int) -> None:
        self._workers = workers
        self._in_flight = [0] * num_engines
        self._next_worker = 0

    async def sample(self, request: RolloutRequest) -> RolloutSummary:
        worker = self._workers[self._next_worker % len(self._workers)]
        self._next_worker += 1
        engine = self._in_flight.index(min(self._in_flight))
        self._in_flight[engine] += 1
        try:
            summary: RolloutSummary = await within(
                request.timeout_s + ANSWER_MARGIN_S, worker, "sample", request, engine
            )
        finally:
            self._in_flight[engine] -= 1
        return summary


class RemotePolicy:
    """All trainer ranks as one, and the way of their weights into the engines."""

    def __init__(
        self, run: RunOptions, ranks: Sequence[Handle], engines: Sequence[Handle], checkpoints: Path, *,
        several_nodes: bool, recorder: Recorder | None = None,
    ) -> None:  # fmt: skip
        self._run = run
        self._ranks = ranks
        self._engines = engines
        self._checkpoints = checkpoints
        self._several_nodes = several_nodes
        self._recorder = recorder
        self._weights_folder: Path | None = None
        self._version = 0

    @property
    def num_ranks(self) -> int:
        return len(self._ranks)

    async def step(self, shares: Sequence[RankShare]) -> StepResult:
        recorder = self._recorder
        records = [None] * self.num_ranks if recorder is None else recorder.begin(self.num_ranks)
        steps = [
            within(TRAIN_TIMEOUT_S, rank, "step", share, record)
            for rank, share, record in zip(self._ranks, shares, records, strict=True)
        ]
        results: list[StepResult] = await all_of(steps)
        if recorder is not None:
            recorder.stepped(results[0], self._version)
        return results[0]

    async def publish(self, version: int) -> Published:
        clock = asyncio.get_running_loop().time
        started = clock()
        written: list[PublishedWeights | None] = await all_of(
            within(
                PUBLISH_TIMEOUT_S, rank, "publish", version, self._several_nodes, self._recorder is not None
            )
            for rank in self._ranks
        )
        self._version = version
        published = next(each for each in written if each is not None)
        weights, reference = published.weights, published.reference
        if self._recorder is not None:
            self._recorder.published(version, published.digest)
        self._weights_folder = weights.path.parent
        gathered = clock()
        drain = not self._run.partial
        await all_of(
            within(PUBLISH_TIMEOUT_S, engine, "update_weights", weights, reference, drain)
            for engine in self._engines
        )
        weights.path.unlink(missing_ok=True)
        return Published(num_bytes=weights.num_bytes, gather_s=gathered - started, load_s=clock() - gathered)

    async def save(self, step: int, state: Mapping[str, Any], payloads: Mapping[str, Any]) -> Awaitable[Path]:
        """Both parts raise RunError when the checkpoint can't be written; what there is of it is removed."""
        with self._writing(step) as unfinished:
            await asyncio.to_thread(checkpoint.begin, self._checkpoints, step)
            # by a rank, because tokens don't pass through the controller
            await within(
                TRAIN_TIMEOUT_S, self._ranks[0], "keep_rollouts", unfinished / checkpoint.ROLLOUTS, payloads
            )
            trainer_state = unfinished / checkpoint.TRAINER_STATE
            await all_of(within(TRAIN_TIMEOUT_S, rank, "save", trainer_state) for rank in self._ranks)
            await all_of(within(TRAIN_TIMEOUT_S, rank, "export", unfinished) for rank in self._ranks)
        return asyncio.create_task(self._commit(step, state), name=f"commit of step {step}")

    async def _commit(self, step: int, state: Mapping[str, Any]) -> Path:
        """Checksums and the flush to disk take longest; no rank is needed for them."""
        keep = checkpoint.Keep(newest=self._run.keep_checkpoints, hours=self._run.keep_hours)
        with self._writing(step) as unfinished:
            return await asyncio.to_thread(checkpoint.commit, unfinished, step, state, keep=keep)

    @contextmanager
    def _writing(self, step: int) -> Iterator[Path]:
        unfinished = checkpoint.unfinished(self._checkpoints, step)
        try:
            yield unfinished
        except Exception as failure:
            shutil.rmtree(unfinished, ignore_errors=True)
            if not isinstance(failure, OSError):
                raise
            message = f"the checkpoint of step {step} can't be written to {self._checkpoints}: {failure}"
            raise RunError(message, reason="checkpoint") from failure

    async def load(self, folder: Path, names: Iterable[str]) -> dict[str, Any]:
        """Bring the trainer to a checkpoint; returns payloads of the rollouts that wait in it, by name."""
        trainer_state = folder / checkpoint.TRAINER_STATE
        await all_of(within(TRAIN_TIMEOUT_S, rank, "load", trainer_state) for rank in self._ranks)
        payloads: dict[str, Any] = await within(
            TRAIN_TIMEOUT_S, self._ranks[0], "fetch_rollouts", folder / checkpoint.ROLLOUTS, list(names)
        )
        return payloads

    def close(self) -> None:
        """Remove what a killed rank could not."""
        if self._weights_folder is not None:
            shutil.rmtree(self._weights_folder, ignore_errors=True)


async def within(timeout_s: float, handle: Handle, method: str, *args: Any) -> Any:
    """Call an actor with a deadline.

    Raises:
        RunError: no answer in time; says of whom and to what.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await handle.call(method, *args)
    except TimeoutError as error:
        raise RunError(
            f"{handle.name} did not answer {method}() within {timeout_s:g} s", reason="no_answer"
        ) from error


async def all_of(calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await all; the first error cancels the others and is raised itself, not wrapped in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_cause(errors) from None
    return [task.result() for task in tasks]
