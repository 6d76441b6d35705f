"""What every engine must do, as tests: subclass `EngineContract` in a test module of your plugin.

    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def engine(model: TinyModel) -> AsyncIterator[Engine]: ...   # started with `context(model)`

    @pytest.mark.asyncio(loop_scope="module")
    class TestMyEngine(EngineContract): ...

with a fixture `model` of module scope that makes a `TinyModel`. One engine serves all tests, in
any order: each starts from whatever version is loaded. Replies are compared with transformers
in float32, so an engine that samples from another distribution than softmax(logits /
temperature), mislabels a token's version, or keeps anything of the old weights fails. Tests that
use an engine up are functions: `assert_stopped`, `assert_unusable_after_a_failed_update`.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from molt_core.api.engine import Engine, Generation
from molt_core.errors import RunError
from molt_core.testing.engine_contract.sampling import SamplingContract
from molt_core.testing.engine_contract.traffic import busy, context, prompts, request
from molt_core.testing.engine_contract.updates import UpdateContract
from molt_core.testing.tiny_model import TinyModel

__all__ = [
    "EngineContract", "assert_all_raise", "assert_stopped", "assert_unusable_after_a_failed_update", "busy", "context",
    "prompts", "request",
]  # fmt: skip


class EngineContract(SamplingContract, UpdateContract):
    """Tests of slot `engines`, API 1."""


async def assert_unusable_after_a_failed_update(engine: Engine, model: TinyModel) -> None:
    """A file whose header fits but whose bytes can't be loaded ends the engine, and everyone hears why.

    The engine is of no use afterwards.
    """
    weights = model.weights(model.next_version())
    content = weights.path.read_bytes()
    header_length = int.from_bytes(content[:8], "little")
    # a dtype of another size: no longer what the offsets say
    header = content[8 : 8 + header_length].replace(b'"F32"', b'"F64"')
    weights.path.write_bytes(content[:8] + header + content[8 + header_length :])
    waiting = await busy(engine)
    with pytest.raises(RunError, match=f"update to version {weights.version} failed"):
        await engine.update_weights(weights, drain=False)
    await assert_all_raise(engine, waiting, f"update to version {weights.version} failed")


async def assert_stopped(engine: Engine) -> None:
    """`stop` ends those who wait, may be called twice, and nothing is served afterwards."""
    waiting = await busy(engine)
    await engine.stop()
    await engine.stop()
    await assert_all_raise(engine, waiting, "stopped")


async def assert_all_raise(engine: Engine, waiting: list[asyncio.Task[Generation]], match: str) -> None:
    """Those who wait hear why nothing comes any more, and so does whoever asks later."""
    ended = [await _error(task) for task in waiting]
    # some may have had their reply in the last moment
    errors = [error for error in ended if error is not None]
    assert errors
    for error in errors:
        assert isinstance(error, RunError)
        assert re.search(match, str(error))
    for call in (engine.generate(request([5])), engine.check_health()):
        with pytest.raises(RunError, match=match):
            await call


async def _error(task: asyncio.Task[Generation]) -> BaseException | None:
    await asyncio.wait({task})
    return task.exception()
