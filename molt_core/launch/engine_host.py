"""The process of one engine: builds it from the plan and passes calls on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from molt_core.api.engine import Engine, EngineContext, GenerateRequest, Generation, Weights
from molt_core.api.executor import Store
from molt_core.plan.plan import Plan


class EngineHost:
    def __init__(self, _store: Store, plan_json: str, context: Mapping[str, Any]) -> None:
        plan = Plan.from_json(plan_json)
        self._engine: Engine = plan.one("engines").build(EngineContext(**context))

    async def start(self) -> None:
        await self._engine.start()

    async def generate(self, request: GenerateRequest) -> Generation:
        return await self._engine.generate(request)

    async def update_weights(self, weights: Weights, drain: bool) -> None:
        await self._engine.update_weights(weights, drain=drain)

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def stop(self) -> None:
        await self._engine.stop()
