"""The process of one engine: builds it from the plan and passes calls on."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from molt_core.api.engine import Engine, EngineContext, GenerateRequest, Generation, Weights
from molt_core.api.executor import Store
from molt_core.launch.shared_memory import shared_memory
from molt_core.plan.plan import Plan


class EngineHost:
    def __init__(self, store: Store, plan_json: str, context: Mapping[str, Any]) -> None:
        self._store = store
        plan = Plan.from_json(plan_json)
        self._engine: Engine = plan.one("engines").build(EngineContext(**context))

    async def start(self) -> None:
        await self._engine.start()

    async def generate(self, request: GenerateRequest) -> Generation:
        return await self._engine.generate(request)

    async def update_weights(self, weights: Weights, reference: Any, drain: bool) -> None:
        """Load weights from their file, or from a copy of it where it lies on another node."""
        if weights.path.exists():
            await self._engine.update_weights(weights, drain=drain)
            return
        with tempfile.NamedTemporaryFile(prefix="molt-weights-", dir=shared_memory()) as copy:
            await asyncio.to_thread(Path(copy.name).write_bytes, self._store.get(reference))
            await self._engine.update_weights(evolve(weights, path=Path(copy.name)), drain=drain)

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def stop(self) -> None:
        await self._engine.stop()
