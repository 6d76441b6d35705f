"""The loop's sampler, fulfilled by a fleet of workers and a fleet of engines.

A rollout goes to the idlest worker; its requests go to one engine, where its siblings' go too, because
those share a prompt that the engine has cached. If either is lost meanwhile, the rollout, of which
nothing was counted yet, is run again from its start by others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from molt_core.api.executor import Handle
from molt_core.errors import ActorLost
from molt_core.experience import RolloutSummary
from molt_core.launch.calls import within
from molt_core.launch.fleet import Fleet, Place
from molt_core.loop.ports import RolloutRequest

ANSWER_MARGIN_S: Final = 60.0
"""A worker ends a rollout at its own deadline; one that has not answered so long after it is lost."""


class RemoteSampler:
    def __init__(self, workers: Fleet, engines: Fleet) -> None:
        self._workers = workers
        self._engines = engines
        self._homes: dict[str, list[int]] = {}
        """Engines at which each group's rollouts are."""
        self._connected: dict[tuple[int, int], tuple[Handle, Handle]] = {}
        """By their keys, pairs of a worker and an engine that it knows."""

    async def sample(self, request: RolloutRequest) -> RolloutSummary:
        deadline_s = request.timeout_s + ANSWER_MARGIN_S
        while True:
            async with self._workers.place() as worker, self._engine(request.group_id) as engine:
                try:
                    await self._connect(worker, engine)
                    summary: RolloutSummary = await within(
                        deadline_s, worker.handle, "sample", request, engine.key
                    )
                except ActorLost as lost:
                    self._report(lost, worker, engine)
                else:
                    return summary

    async def texts(self, payload: Any) -> dict[str, Any]:
        """Whole texts of a rollout.

        Raises:
            ObjectLost: its tokens are gone.
        """
        while True:
            async with self._workers.place() as worker:
                try:
                    texts: dict[str, Any] = await within(ANSWER_MARGIN_S, worker.handle, "texts", payload)
                except ActorLost as lost:
                    self._report(lost, worker)
                else:
                    return texts

    @asynccontextmanager
    async def _engine(self, group_id: str) -> AsyncIterator[Place]:
        homes = self._homes.get(group_id)
        async with self._engines.place(homes[0] if homes else None) as engine:
            homes = self._homes.setdefault(group_id, [])
            homes.append(engine.key)
            try:
                yield engine
            finally:
                homes.remove(engine.key)
                if not homes:
                    self._homes.pop(group_id, None)

    async def _connect(self, worker: Place, engine: Place) -> None:
        """Make the engine known to the worker; once, because a handle is larger than all else of a request."""
        keys, pair = (worker.key, engine.key), (worker.handle, engine.handle)
        if self._connected.get(keys) != pair:
            await within(ANSWER_MARGIN_S, worker.handle, "connect", engine.key, engine.handle)
            self._connected[keys] = pair

    def _report(self, lost: ActorLost, worker: Place, engine: Place | None = None) -> None:
        """Raises the loss itself if it is none of these two."""
        if not self._workers.report(worker, lost) and not (engine and self._engines.report(engine, lost)):
            raise lost
