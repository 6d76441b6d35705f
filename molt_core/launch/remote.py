"""The loop's policy, fulfilled by actors: all trainer ranks as one, and the way of their weights into the engines."""

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
from molt_core.errors import ActorLost, RunError
from molt_core.launch import checkpoint
from molt_core.launch.calls import all_of, within
from molt_core.launch.fleet import Fleet, Place
from molt_core.launch.record import Recorder
from molt_core.launch.trainer_host import PublishedWeights
from molt_core.loop.ports import Published, RankShare, RolloutsLost

TRAIN_TIMEOUT_S = 3600.0
PUBLISH_TIMEOUT_S = 900.0


class RemotePolicy:
    def __init__(
        self, run: RunOptions, ranks: Sequence[Handle], engines: Fleet, checkpoints: Path, *,
        shares_files: bool, recorder: Recorder | None = None,
    ) -> None:  # fmt: skip
        self._run = run
        self._ranks = ranks
        self._engines = engines
        self._checkpoints = checkpoints
        self._shares_files = shares_files
        self._recorder = recorder
        self._current: PublishedWeights | None = None
        """What engines have to have. Its file stays for those that join; the next version takes its place."""
        self._version = 0
        self._ranks_failed = False
        engines.admit = self._load_into

    @property
    def num_ranks(self) -> int:
        return len(self._ranks)

    async def step(self, shares: Sequence[RankShare]) -> StepResult:
        lost: list[list[int]] = await self._together(
            within(TRAIN_TIMEOUT_S, rank, "fetch", share)
            for rank, share in zip(self._ranks, shares, strict=True)
        )
        if any(lost):
            raise RolloutsLost(
                item.rollout_id
                for share, indices in zip(shares, lost, strict=True)
                for item in share.items
                if item.rollout_index in indices
            )
        recorder = self._recorder
        records = [None] * self.num_ranks if recorder is None else recorder.begin(self.num_ranks)
        steps = (
            within(TRAIN_TIMEOUT_S, rank, "step", record)
            for rank, record in zip(self._ranks, records, strict=True)
        )
        results: list[StepResult] = await self._together(steps)
        if recorder is not None:
            recorder.stepped(results[0], self._version)
        return results[0]

    async def _together(self, calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Calls of ranks. Where one has failed the others may wait for it, and would not answer for an hour."""
        if self._ranks_failed:
            raise RunError("a trainer rank has failed, and the others can't go on without it", reason="ranks")
        try:
            return await all_of(calls)
        except Exception as failure:
            self._ranks_failed = self.num_ranks > 1 or isinstance(failure, ActorLost)
            raise

    async def publish(self, version: int) -> Published:
        """Into every engine that is there; one that joins meanwhile waits, and gets these."""
        clock = asyncio.get_running_loop().time
        keeps_digest = self._recorder is not None
        async with self._engines.membership:
            started = clock()
            written: list[PublishedWeights | None] = await self._together(
                within(PUBLISH_TIMEOUT_S, rank, "publish", version, not self._shares_files, keeps_digest)
                for rank in self._ranks
            )
            self._version = version
            self._current = published = next(each for each in written if each is not None)
            if self._recorder is not None:
                self._recorder.published(version, published.digest)
            gathered = clock()
            await all_of(self._update(place) for place in self._engines.places())
        seconds = {"gather_s": gathered - started, "load_s": clock() - gathered}
        return Published(num_bytes=published.weights.num_bytes, **seconds)

    async def _update(self, place: Place) -> None:
        try:
            await self._load_into(place.handle)
        except ActorLost as lost:
            if not self._engines.report(place, lost):
                raise

    async def _load_into(self, engine: Handle) -> None:
        if (current := self._current) is not None:
            drain = not self._run.partial
            # draining, it waits for the longest reply first
            timeout_s = PUBLISH_TIMEOUT_S + (self._run.rollout_timeout_s if drain else 0.0)
            await within(timeout_s, engine, "update_weights", current.weights, current.reference, drain)

    async def save(self, step: int, state: Mapping[str, Any], payloads: Mapping[str, Any]) -> Awaitable[Path]:
        """Both parts raise RunError when the checkpoint can't be written; what there is of it is removed."""
        with self._writing(step) as unfinished:
            await asyncio.to_thread(checkpoint.begin, self._checkpoints, step)
            # by a rank, because tokens don't pass through the controller
            rollouts = unfinished / checkpoint.ROLLOUTS
            lost: list[str]
            (lost,) = await self._together(
                within(TRAIN_TIMEOUT_S, rank, "keep_rollouts", rollouts, payloads) for rank in self._ranks[:1]
            )
            if lost:
                raise RolloutsLost(lost)
            trainer_state = unfinished / checkpoint.TRAINER_STATE
            await self._together(within(TRAIN_TIMEOUT_S, rank, "save", trainer_state) for rank in self._ranks)
            await self._together(within(TRAIN_TIMEOUT_S, rank, "export", unfinished) for rank in self._ranks)
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
        if self._current is not None:
            shutil.rmtree(self._current.weights.path.parent, ignore_errors=True)
