"""Stock SDKs against a running gateway over real vLLM: what was captured is the engine's own record, bit by bit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from gateway_kit import assert_exact
from molt_plugin_models.tiny import ROLES, make_tiny
from sdk_kit import MODES, PARAMETERS, Mode, anthropic_client, ask, openai_client
from vllm_kit import Recorded, over_vllm

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tiny(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Recorded]:
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny(folder)
    async with over_vllm(folder, end_token_id=list(ROLES).index("eos_token")) as made:
        yield made


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_three_turns_are_captured_bit_by_bit(tiny: Recorded, mode: Mode) -> None:
    session = tiny.rig.open(str(mode), max_tokens=24)
    history = [{"role": "user", "content": "Where?"}]
    for question in ("And then?", "Why?", ""):
        heard = await ask(session, mode, history, tools=["look"])
        history = [*heard.history, {"role": "user", "content": question}]
    capture, mine = await session.close(), tiny.of(str(mode))
    assert len(mine) == 3
    assert heard.prompt_tokens == len(mine[-1][0].token_ids)
    assert_exact(capture, mine)
    # a model that knows nothing says what no template gives back, and still nothing is tokenized again
    (segment,) = capture.segments
    assert segment.num_tokens == heard.prompt_tokens + heard.completion_tokens


async def test_many_sessions_at_once(tiny: Recorded) -> None:
    sessions = [tiny.rig.open(f"rollout-{number}", max_tokens=16) for number in range(8)]
    modes = [mode for mode in MODES if not mode.sync]

    async def converse(number: int) -> None:
        history = [{"role": "user", "content": f"Where is {number}?"}]
        for _ in range(2):
            heard = await ask(sessions[number], modes[number % len(modes)], history)
            history = [*heard.history, {"role": "user", "content": "And?"}]

    await asyncio.gather(*(converse(number) for number in range(8)))
    for number, session in enumerate(sessions):
        mine = tiny.of(f"rollout-{number}")
        assert len(mine) == 2
        assert_exact(await session.close(), mine)


async def test_n_stop_schema_and_a_required_call(tiny: Recorded) -> None:
    session = tiny.rig.open("features", max_tokens=200)
    question = [{"role": "user", "content": "1 + 1 = ?"}]
    tool = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]}
    async with openai_client(session) as client:
        several = await client.chat.completions.create(
            model="m", messages=question, n=3, logprobs=True, max_tokens=12
        )
        assert len({choice.message.content for choice in several.choices}) == 3
        for choice, (_, reply) in zip(several.choices, tiny.of("features"), strict=True):
            logprobs = [each.logprob for each in choice.logprobs.content]
            assert logprobs == reply.logprobs[: len(logprobs)].tolist()
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        structured = await client.chat.completions.create(model="m", messages=question, response_format=form)
        assert json.loads(structured.choices[0].message.content)["x"] in (1, 2)
        await client.chat.completions.create(
            model="m", messages=question, tools=[tool], tool_choice="required", max_tokens=8
        )
    async with anthropic_client(session) as client:
        stopped = await client.messages.create(
            model="m", messages=question, max_tokens=200, stop_sequences=list("etaoin")
        )
        assert stopped.stop_reason == "stop_sequence"
        assert not set(stopped.content[0].text if stopped.content else "") & set("etaoin")
    capture = await session.close()
    assert_exact(capture, tiny.of("features"))
    assert {each.reason for each in capture.left_out} >= {"constrained"}
