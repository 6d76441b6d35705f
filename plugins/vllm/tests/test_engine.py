from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio
from molt_plugin_vllm import processes
from molt_plugin_vllm.engine import VllmEngine
from molt_plugin_vllm.spec import VllmOptions

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

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

# small blocks, so that the prefix cache holds something of a prompt of 300 tokens
OPTIONS = VllmOptions(kv_cache_gib=0.1, args=("block_size=32",))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model: TinyModel) -> AsyncIterator[VllmEngine]:
    made = VllmEngine(OPTIONS, context(model))
    await made.start()
    yield made
    await made.stop()


class TestContract(EngineContract):
    pass


async def test_a_cancelled_request_is_aborted_in_vllm(engine: VllmEngine) -> None:
    waiting = await busy(engine)
    assert engine._llm is not None
    assert engine._llm.get_num_unfinished_requests() > 0
    for cancelled in waiting:
        cancelled.cancel()
    await asyncio.wait(waiting)
    assert engine._llm.get_num_unfinished_requests() == 0


async def test_seeded_prompts_of_more_tokens_than_a_step_computes_are_answered(engine: VllmEngine) -> None:
    long = [prompt * (400 // len(prompt)) for prompt in prompts()]
    replies = await asyncio.gather(
        *(engine.generate(request(prompt, max_tokens=4, seed=7)) for prompt in long * 8)
    )
    first = replies[: len(long)]
    for number, reply in enumerate(replies):
        assert reply.token_ids.tolist() == first[number % len(long)].token_ids.tolist()


async def test_ctrl_c_does_not_reach_engine_core(engine: VllmEngine) -> None:
    assert engine._llm is not None
    for process in processes.family(engine._llm):
        os.kill(process.pid, signal.SIGINT)
    await engine.generate(request(prompts()[0]))
    await engine.check_health()


async def test_nothing_listens_beyond_loopback(engine: VllmEngine) -> None:
    assert engine._llm is not None
    for process in (psutil.Process(), *processes.family(engine._llm)):
        listening = {c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        assert listening <= {"127.0.0.1", "::1"}


async def test_a_failed_update_ends_engine_and_processes(engine: VllmEngine, model: TinyModel) -> None:
    # the last test of this engine
    assert engine._llm is not None
    family = processes.family(engine._llm)
    assert family
    await assert_unusable_after_a_failed_update(engine, model)
    assert not [process for process in family if process.is_running()]


async def test_a_killed_engine_core_ends_every_waiting_request_and_names_the_signal(model: TinyModel) -> None:
    engine = VllmEngine(OPTIONS, context(model, index=1))
    await engine.start()
    assert engine._llm is not None
    family = processes.family(engine._llm)
    waiting = await busy(engine)
    os.kill(family[0].pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        await assert_all_raise(engine, waiting, r"engine-1 \(vllm.*killed by SIGKILL")
        with pytest.raises(RunError, match="SIGKILL"):
            await engine.update_weights(model.weights(model.next_version()), drain=False)
    await engine.stop()
    assert not [process for process in family if process.is_running()]


async def test_stop_ends_those_who_wait_and_leaves_no_process(model: TinyModel) -> None:
    engine = VllmEngine(OPTIONS, context(model, index=2))
    await engine.start()
    assert engine._llm is not None
    family = processes.family(engine._llm)
    await assert_stopped(engine)
    assert not [process for process in family if process.is_running()]
