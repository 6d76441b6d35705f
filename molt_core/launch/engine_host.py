"""The process of one engine: builds it from the plan and passes calls on.

An engine that raises RunError can't serve any more, so that is told as the loss of this actor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve

from molt_core.api.engine import Engine, EngineContext, GenerateRequest, Generation, Weights
from molt_core.api.executor import Store
from molt_core.errors import ActorLost, RunError
from molt_core.launch.shared_memory import SharedFolder
from molt_core.plan.plan import Plan


class EngineHost:
    def __init__(self, store: Store, plan_json: str, context: Mapping[str, Any]) -> None:
        self._store = store
        plan = Plan.from_json(plan_json)
        self._name = engine_name(context["index"])
        self._engine: Engine = plan.one("engines").build(EngineContext(**context))

    async def start(self) -> None:
        await self._engine.start()

    async def generate(self, request: GenerateRequest) -> Generation:
        with self._lost_with_it():
            return await self._engine.generate(request)

    async def update_weights(self, weights: Weights, reference: Any, drain: bool) -> None:
        """Load weights from their file, or from a copy of it where it lies on another node."""
        with self._lost_with_it():
            if weights.path.exists():
                await self._engine.update_weights(weights, drain=drain)
                return
            shared = await asyncio.to_thread(SharedFolder)
            copy = shared.path / "weights.safetensors"
            try:
                # in a thread: requests go on while gigabytes come over the network
                await asyncio.to_thread(self._fetch, reference, copy, weights.version)
                await self._engine.update_weights(evolve(weights, path=copy), drain=drain)
            finally:
                await asyncio.to_thread(shared.remove)

    def _fetch(self, reference: Any, path: Path, version: int) -> None:
        data = self._store.get(reference)
        try:
            path.write_bytes(data)
        except OSError as error:
            raise RunError(
                f"{self._name} can't keep the weights of version {version} ({len(data)} bytes) at {path}: {error}",
                reason="engine_update",
            ) from error

    @contextmanager
    def _lost_with_it(self) -> Iterator[None]:
        try:
            yield
        except RunError as error:
            raise ActorLost(str(error), actor=self._name, reason=error.reason) from error

    async def stop(self) -> None:
        await self._engine.stop()


def engine_name(index: int) -> str:
    return f"engine-{index}"
