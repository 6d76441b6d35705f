"""A running gateway over real vLLM, with a record of the engine's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from attrs import frozen
from gateway_kit import Rig, running
from molt_plugin_vllm.engine import VllmEngine
from molt_plugin_vllm.spec import VllmOptions

from molt_core.api.engine import EngineContext, GenerateRequest, Generation

MAX_LENGTH = 1024


@frozen
class Recorded:
    rig: Rig
    record: list[tuple[GenerateRequest, Generation]]
    """Written before the gateway sees a reply."""

    def of(self, rollout_id: str) -> list[tuple[GenerateRequest, Generation]]:
        """In order of the requests."""
        mine = {
            int(request.request_id.removeprefix(f"{rollout_id}/")): (request, reply)
            for request, reply in self.record
            if request.request_id.startswith(f"{rollout_id}/")
        }
        return [mine[number] for number in sorted(mine)]


@asynccontextmanager
async def over_vllm(
    folder: Path, *, end_token_id: int, max_length: int = MAX_LENGTH, kv_cache_gib: float = 0.1
) -> AsyncIterator[Recorded]:
    context = EngineContext(
        model_folder=str(folder), dtype="float32", max_length=max_length, max_concurrency=16, seed=0, index=0,
        num_threads=1, end_token_ids=(end_token_id,),
    )  # fmt: skip
    engine = VllmEngine(VllmOptions(kv_cache_gib=kv_cache_gib, args=("block_size=32",)), context)
    record: list[tuple[GenerateRequest, Generation]] = []

    async def generate(request: GenerateRequest) -> Generation:
        reply = await engine.generate(request)
        record.append((request, reply))
        return reply

    await engine.start()
    try:
        async with running(folder, generate, max_length=max_length, end_token_id=end_token_id) as rig:
            yield Recorded(rig, record)
    finally:
        await engine.stop()
