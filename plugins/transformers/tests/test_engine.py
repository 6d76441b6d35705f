from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from molt_plugin_transformers.engine import TransformersEngine

from molt_core.api.options import NoOptions
from molt_core.errors import RunError
from molt_core.testing.engine_contract import (
    EngineContract,
    assert_all_raise,
    assert_stopped,
    assert_unusable_after_a_failed_update,
    busy,
    context,
    prompts,
    request,
)
from molt_core.testing.tiny_model import TinyModel


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model: TinyModel) -> AsyncIterator[TransformersEngine]:
    made = TransformersEngine(NoOptions(), context(model))
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def own_engine(model: TinyModel) -> AsyncIterator[TransformersEngine]:
    made = TransformersEngine(NoOptions(), context(model))
    await made.start()
    yield made
    await made.stop()


@pytest.mark.asyncio(loop_scope="module")
class TestContract(EngineContract):
    pass


@pytest.mark.asyncio(loop_scope="module")
async def test_a_cancelled_request_leaves_the_batch(engine: TransformersEngine) -> None:
    waiting = await busy(engine)
    for cancelled in waiting:
        cancelled.cancel()
    await asyncio.wait(waiting)
    await engine.generate(request(prompts()[1], max_tokens=2))
    assert engine._batch is not None
    assert engine._batch.num_unfinished == 0


async def test_a_failed_update_ends_the_engine(own_engine: TransformersEngine, model: TinyModel) -> None:
    await assert_unusable_after_a_failed_update(own_engine, model)


async def test_a_model_that_raises_ends_every_waiting_request(own_engine: TransformersEngine) -> None:
    waiting = await busy(own_engine)
    assert own_engine._model is not None
    del own_engine._model.module.lm_head
    await assert_all_raise(own_engine, waiting, r"engine-0 .* died: AttributeError.*lm_head")


async def test_stop_ends_those_who_wait(own_engine: TransformersEngine) -> None:
    await assert_stopped(own_engine)


async def test_a_folder_without_a_model_is_named(tmp_path: Path, model: TinyModel) -> None:
    import attrs

    engine = TransformersEngine(NoOptions(), attrs.evolve(context(model), model_folder=str(tmp_path)))
    with pytest.raises(RunError, match=rf"could not start.*{tmp_path.name}"):
        await engine.start()
    await engine.stop()
