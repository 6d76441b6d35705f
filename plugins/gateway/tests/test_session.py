"""What a session makes of a request beyond plain text, and what it offers without HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from gateway_kit import Rig, assert_exact, running, save_model, scripted, until
from sdk_kit import PARAMETERS, anthropic_client, openai_client

from molt_core.errors import RunError
from molt_core.experience.checks import SEGMENT_CHECKS
from molt_core.testing.scripted_engine import ScriptedEngine

CALLS = (
    '<tool_call>\n{"name": "look", "arguments": {"place": "here"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "look", "arguments": {"place": "there"}}\n</tool_call>'
)
HELLO = [{"role": "user", "content": "Hello?"}]
LOOK = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}


class Stage:
    """A gateway whose engine says what `say` returns."""

    def __init__(self, folder: Path) -> None:
        self.say: Callable[[str, int], Any] = lambda prompt, number: f"Answer {number}."
        self.engine: ScriptedEngine = scripted(
            folder, lambda prompt, number: self.say(prompt, number), max_length=1000
        )
        self.rig: Rig

    def always(self, said: str | Exception) -> None:
        self.say = lambda prompt, number: said

    def prompt(self, number: int = -1) -> str:
        token_ids = list(self.engine.record[number][0].token_ids)
        return str(self.engine._tokenizer.decode(token_ids, skip_special_tokens=False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    save_model(made)
    return made


@pytest_asyncio.fixture
async def stage(folder: Path) -> AsyncIterator[Stage]:
    made = Stage(folder)
    async with running(folder, made.engine.generate, max_length=1000) as rig:
        made.rig = rig
        yield made


async def test_n_choices_are_n_samples_of_one_prompt(stage: Stage) -> None:
    session = stage.rig.open()
    async with openai_client(session) as client:
        said = await client.chat.completions.create(model="m", messages=HELLO, n=3)
    assert [choice.message.content for choice in said.choices] == ["Answer 0.", "Answer 1.", "Answer 2."]
    assert [choice.index for choice in said.choices] == [0, 1, 2]
    capture = await session.close()
    assert len(capture.segments) == 3
    assert_exact(capture, stage.engine.record)
    assert said.usage.completion_tokens == sum(len(reply.token_ids) for _, reply in stage.engine.record)


async def test_a_failure_of_one_of_n_records_none(stage: Stage) -> None:
    stage.say = lambda prompt, number: ValueError("no") if number == 1 else "yes"
    session = stage.rig.open()
    async with openai_client(session, max_retries=0) as client:
        with pytest.raises(Exception, match="no"):
            await client.chat.completions.create(model="m", messages=HELLO, n=2)
    assert not (await session.close()).segments


async def test_a_stop_text_is_not_in_the_text_and_its_tokens_are_kept(stage: Stage) -> None:
    stage.always("Thought: look.\nObservation: a chair")
    session = stage.rig.open()
    async with openai_client(session) as client:
        chat = await client.chat.completions.create(model="m", messages=HELLO, stop=["Observation:", "never"])
    async with anthropic_client(session) as client:
        messages = await client.messages.create(
            model="m", max_tokens=99, messages=HELLO, stop_sequences=["Observation:"]
        )
    assert chat.choices[0].message.content == messages.content[0].text == "Thought: look.\n"
    assert (chat.choices[0].finish_reason, messages.stop_reason) == ("stop", "stop_sequence")
    assert messages.stop_sequence == "Observation:"
    capture = await session.close()
    assert_exact(capture, stage.engine.record)
    kept = capture.segments[0]
    assert stage.engine._tokenizer.decode(kept.token_ids[kept.sampled].tolist()).endswith("Observation:")


async def test_logprobs_are_those_that_were_recorded(stage: Stage) -> None:
    session = stage.rig.open()
    async with openai_client(session) as client:
        said = await client.chat.completions.create(model="m", messages=HELLO, logprobs=True)
    ((_, reply),) = stage.engine.record
    content = said.choices[0].logprobs.content
    assert "".join(each.token for each in content) == "Answer 0."
    assert [each.logprob for each in content] == reply.logprobs[:-1].tolist()


async def test_a_schema_reaches_the_engine_and_its_sample_is_left_out(stage: Stage) -> None:
    stage.always('{"place": "here"}')
    session = stage.rig.open()
    async with openai_client(session) as client:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": PARAMETERS}}
        await client.chat.completions.create(model="m", messages=HELLO, response_format=form)
    ((request, _),) = stage.engine.record
    assert request.json_schema is not None
    assert json.loads(request.json_schema) == PARAMETERS
    capture = await session.close()
    assert [each.reason for each in capture.left_out] == ["constrained"]
    assert not capture.segments


async def test_a_required_call_is_opened_with_given_tokens(stage: Stage) -> None:
    stage.always('{"name": "look", "arguments": {"place": "here"}}\n</tool_call>')
    session = stage.rig.open()
    async with openai_client(session) as client:
        said = await client.chat.completions.create(
            model="m", messages=HELLO, tools=[LOOK], tool_choice="required"
        )
        (call,) = said.choices[0].message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("look", {"place": "here"})
        assert said.choices[0].finish_reason == "tool_calls"
        assert stage.prompt().endswith("<|im_start|>assistant\n<tool_call>\n")
        stage.always('{"place": "there"}}\n</tool_call>')
        named = {"type": "function", "function": {"name": "look"}}
        said = await client.chat.completions.create(
            model="m", messages=HELLO, tools=[LOOK], tool_choice=named
        )
        assert json.loads(said.choices[0].message.tool_calls[0].function.arguments) == {"place": "there"}
        stage.always("It is there.")
        result = {"role": "tool", "tool_call_id": said.choices[0].message.tool_calls[0].id, "content": "yes"}
        history = [*HELLO, said.choices[0].message.to_dict(), result]
        await client.chat.completions.create(model="m", messages=history, tools=[LOOK])
    capture = await session.close()
    assert_exact(capture, stage.engine.record)
    # the second call and the answer to its result are one, the opening among what was given
    longest = max(capture.segments, key=lambda segment: segment.num_tokens)
    assert longest.num_sampled == sum(len(reply.token_ids) for _, reply in stage.engine.record[1:])


async def test_a_required_call_is_refused_where_no_opening_is_known(folder: Path) -> None:
    engine = scripted(folder, lambda prompt, number: "x")
    async with running(folder, engine.generate, tool_parser="none") as rig:
        session = rig.open()
        async with openai_client(session) as client:
            with pytest.raises(Exception, match="tool_choice"):
                await client.chat.completions.create(
                    model="m", messages=HELLO, tools=[LOOK], tool_choice="required"
                )
    assert not engine.num_calls


async def test_calls_are_not_read_where_none_is_wanted_and_one_is_kept_where_one_is(stage: Stage) -> None:
    stage.always(CALLS)
    session = stage.rig.open()
    async with openai_client(session) as client:

        async def ask(**more: Any) -> Any:
            said = await client.chat.completions.create(model="m", messages=HELLO, tools=[LOOK], **more)
            return said.choices[0]

        both = await ask()
        assert len({call.id for call in both.message.tool_calls}) == 2
        none = await ask(tool_choice="none")
        assert (none.message.tool_calls, none.message.content, none.finish_reason) == (None, CALLS, "stop")
        one = await ask(parallel_tool_calls=False)
        assert [call.function.arguments for call in one.message.tool_calls] == ['{"place": "here"}']
        stage.always("Fine.")
        result = {"role": "tool", "tool_call_id": one.message.tool_calls[0].id, "content": "a chair"}
        await client.chat.completions.create(
            model="m", messages=[*HELLO, one.message.to_dict(), result], tools=[LOOK]
        )
    # the history holds the call that the client saw; the tokens are those of both
    assert "there" in stage.prompt()
    assert_exact(await session.close(), stage.engine.record)


async def test_namespaces_and_custom_tools_come_back_as_they_were_given(stage: Stage) -> None:
    stage.always(
        '<tool_call>\n{"name": "agents__spawn", "arguments": {"place": "here"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "patch", "arguments": {"input": "*** Begin\\n"}}\n</tool_call>'
    )
    session = stage.rig.open()
    spawn = {"type": "function", "name": "spawn", "parameters": PARAMETERS}
    tools = [
        {"type": "namespace", "name": "agents", "tools": [spawn]},
        {"type": "custom", "name": "patch", "description": "edits"},
    ]
    async with openai_client(session) as client:
        said = await client.responses.create(model="m", input="Hello?", tools=tools)
        first, second = (item.to_dict() for item in said.output)
        assert (first["type"], first["name"], first["namespace"]) == ("function_call", "spawn", "agents")
        assert (second["type"], second["name"], second["input"]) == (
            "custom_tool_call",
            "patch",
            "*** Begin\n",
        )
        outputs = [
            {"type": "custom_tool_call_output", "call_id": second["call_id"], "output": "patched"},
            {"type": "function_call_output", "call_id": first["call_id"], "output": "spawned"},
        ]
        stage.always("Done.")
        history = [*HELLO, first, second, *outputs]
        await client.responses.create(model="m", input=history, tools=tools)
    capture = await session.close()
    assert_exact(capture, stage.engine.record)
    assert len(capture.segments) == 1


async def test_usage_counts_reasoning_and_what_history_supplied(stage: Stage) -> None:
    stage.always("<think>\nhello\n</think>\n\nFine.")
    session = stage.rig.open()
    async with openai_client(session) as client:
        first = await client.chat.completions.create(model="m", messages=HELLO)
        message = first.choices[0].message
        assert (message.reasoning_content, message.content) == ("hello", "Fine.")
        history = [*HELLO, message.to_dict(), {"role": "user", "content": "And?"}]
        second = await client.chat.completions.create(model="m", messages=history)
    # <think>, a line break, and `hello`, which is one token
    assert first.usage.completion_tokens_details.reasoning_tokens == 3
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached == first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.total_tokens == second.usage.prompt_tokens + second.usage.completion_tokens


async def test_fields_that_follow_the_run_are_warned_of_once_a_session(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    session = stage.rig.open("rollout-7")
    with caplog.at_level(logging.WARNING, "molt_plugin_gateway"):
        async with openai_client(session) as client:
            for _ in range(2):
                await client.chat.completions.create(model="m", messages=HELLO, temperature=0.1, top_p=0.5)
    assert [record.getMessage() for record in caplog.records] == [
        "rollout rollout-7: temperature, top_p of a request are ignored: sampling follows the run. "
        "Said once per session."
    ]
    assert {request.temperature for request, _ in stage.engine.record} == {1.0}


async def test_chat_is_recorded_like_a_request(stage: Stage) -> None:
    session = stage.rig.open()
    first = await session.chat(HELLO, tools=[LOOK])
    assert (first.text, first.finish_reason, first.sample_id) == ("Answer 0.", "stop", 0)
    stage.always(CALLS)
    second = await session.chat([*HELLO, first.message, {"role": "user", "content": "And?"}], tools=[LOOK])
    assert [(call.name, call.arguments) for call in second.tool_calls] == [
        ("look", '{"place": "here"}'),
        ("look", '{"place": "there"}'),
    ]
    assert (second.finish_reason, second.sample_id) == ("tool_calls", 1)
    assert second.num_tokens == len(stage.engine.record[-1][1].token_ids)
    cut = await session.chat(HELLO, tools=[LOOK], max_tokens=2)
    assert (cut.finish_reason, cut.num_tokens) == ("length", 2)
    capture = await session.close()
    assert_exact(capture, stage.engine.record)
    assert set(capture.ends) == {0, 1, 2}
    with pytest.raises(ValueError, match="session is closed"):
        await session.chat(HELLO)


async def test_likely_tokens_are_recorded_where_the_run_wants_them(stage: Stage) -> None:
    session = stage.rig.open(top_logprobs=3)
    first = await session.chat(HELLO)
    await session.chat([*HELLO, first.message, {"role": "user", "content": "And?"}])
    await session.judge("How good?")
    (segment,) = (await session.close()).segments
    assert [request.top_logprobs for request, _ in stage.engine.record] == [3, 3, 0]
    replies = [reply for _, reply in stage.engine.record[:2]]
    assert segment.top_ids is not None
    assert segment.top_logprobs is not None
    assert segment.top_ids.tolist() == [row for reply in replies for row in reply.top_ids.tolist()]
    assert segment.top_logprobs.tolist() == [row for reply in replies for row in reply.top_logprobs.tolist()]
    assert all(check(segment) for check in SEGMENT_CHECKS)


async def test_chat_that_does_not_fit_is_an_empty_reply_and_truncates(stage: Stage) -> None:
    session = stage.rig.open()
    first = await session.chat(HELLO)
    long = [*HELLO, first.message, {"role": "user", "content": "x" * 2000}]
    reply = await session.chat(long)
    assert (reply.text, reply.finish_reason, reply.num_tokens, reply.sample_id) == ("", "length", 0, -1)
    capture = await session.close()
    assert capture.truncated
    assert len(capture.segments) == 1


async def test_chat_names_the_message_at_fault(stage: Stage) -> None:
    session = stage.rig.open()
    with pytest.raises(ValueError, match=r"^messages\.1\.role: "):
        await session.chat([*HELLO, {"role": "nobody", "content": "x"}])


async def test_a_cancelled_chat_ends_its_generation_and_is_not_recorded(stage: Stage) -> None:
    async def never(prompt: str, number: int) -> str:
        await asyncio.Event().wait()
        return ""

    stage.say = never
    session = stage.rig.open()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.chat(HELLO)
    assert stage.engine.num_in_flight == 0
    # the end of the session ends what an agent left behind
    left_behind = asyncio.create_task(session.chat(HELLO))
    await until(lambda: stage.engine.num_in_flight == 1)
    assert not (await session.close()).segments
    await asyncio.wait({left_behind})
    assert left_behind.cancelled()


async def test_a_lost_engine_lets_chat_wait_for_the_end(stage: Stage) -> None:
    stage.always(RunError("the engine died"))
    session = stage.rig.open()
    waiting = asyncio.create_task(session.chat(HELLO))
    assert str(await session.failed()) == "the engine died"
    assert not waiting.done()
    await session.close()
    await asyncio.wait({waiting})
    assert waiting.cancelled()


async def test_a_defect_ends_the_session_with_what_was_raised(stage: Stage) -> None:
    stage.always(KeyError("a bug"))
    session = stage.rig.open()
    waiting = asyncio.create_task(session.chat(HELLO))
    assert isinstance(await session.failed(), KeyError)
    await session.close()
    await asyncio.wait({waiting})


async def test_the_judge_is_neither_recorded_nor_sampled_like_the_policy(stage: Stage) -> None:
    stage.always("<think>\nhm\n</think>\n\n7 of 10")
    session = stage.rig.open()
    assert await session.judge("How good?", max_tokens=50) == "7 of 10"
    assert (
        await session.judge([{"role": "system", "content": "Be strict."}, *HELLO], temperature=0.5)
        == "7 of 10"
    )
    assert [(request.temperature, request.max_tokens) for request, _ in stage.engine.record] == [
        (0, 50),
        (0.5, 512),
    ]
    assert len({request.request_id for request, _ in stage.engine.record}) == 2
    with pytest.raises(ValueError, match="nobody"):
        await session.judge([{"role": "nobody", "content": "x"}])
    with pytest.raises(ValueError, match="max_length"):
        await session.judge("x" * 2000)
    capture = await session.close()
    assert not capture.segments
    assert not capture.left_out
    # graders may ask it after the agent has ended
    assert await session.judge("How good?") == "7 of 10"


async def test_sessions_share_nothing(stage: Stage) -> None:
    sessions = [stage.rig.open(f"rollout-{number}") for number in range(20)]
    await asyncio.gather(*(session.chat(HELLO) for session in sessions for _ in range(3)))
    captures = [await session.close() for session in sessions]
    assert all(len(capture.segments) == 3 for capture in captures)
    assert len({request.request_id for request, _ in stage.engine.record}) == 60
    assert len({request.seed for request, _ in stage.engine.record}) == 3
    assert len(stage.rig.gateway._sessions) == 0
