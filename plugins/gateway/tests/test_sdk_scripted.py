"""Stock SDKs against a running gateway over a scripted engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gateway_kit import assert_exact, running, save_model, scripted
from sdk_kit import MODES, Mode, ask, tool_result

CALL = '  Let me  look — ok.\n<tool_call>\n{"name": "look",  "arguments": {"place":  "here"}}\n</tool_call>'
END_REASONS = {"chat": "stop", "responses": "completed", "messages": "end_turn"}
CALL_REASONS = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    save_model(made)
    return made


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_two_turns_are_one_segment_of_the_engines_own_tokens(folder: Path, mode: Mode) -> None:
    engine = scripted(folder, lambda prompt, number: f"Answer {number}, hello.")
    async with running(folder, engine.generate) as rig:
        session = rig.open()
        first = await ask(session, mode, [{"role": "user", "content": "Hello?"}])
        second = await ask(session, mode, [*first.history, {"role": "user", "content": "And then?"}])
        capture = await session.close()
    assert (first.text, second.text) == ("Answer 0, hello.", "Answer 1, hello.")
    assert second.reason == END_REASONS[mode.wire]
    assert_exact(capture, engine.record)
    (segment,) = capture.segments
    assert not capture.left_out
    request, reply = engine.record[-1]
    assert segment.token_ids.tolist() == [*request.token_ids, *reply.token_ids]
    assert segment.num_sampled == first.completion_tokens + second.completion_tokens
    assert second.prompt_tokens == len(request.token_ids)
    assert capture.reply_text == "Answer 1, hello."
    assert not capture.truncated


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_tool_call_and_its_result_go_on_in_the_same_segment(folder: Path, mode: Mode) -> None:
    engine = scripted(folder, lambda prompt, number: "It is here." if number else CALL)
    async with running(folder, engine.generate) as rig:
        session = rig.open()
        first = await ask(session, mode, [{"role": "user", "content": "Where?"}], tools=["look"])
        ((call_id, name, arguments),) = first.calls
        assert (name, arguments) == ("look", {"place": "here"})
        assert first.reason == CALL_REASONS[mode.wire]
        assert first.text.strip() == "Let me  look — ok."
        history = [*first.history, tool_result(mode, call_id, "a chair")]
        second = await ask(session, mode, history, tools=["look"])
        capture = await session.close()
    assert (second.text, second.calls) == ("It is here.", ())
    assert_exact(capture, engine.record)
    assert len(capture.segments) == 1


@pytest.mark.parametrize("mode", [mode for mode in MODES if not mode.sync], ids=str)
async def test_parallel_equal_requests_are_samples_of_their_own(folder: Path, mode: Mode) -> None:
    engine = scripted(folder, lambda prompt, number: f"Answer {number}.")
    engine._delay_s = 0.05
    async with running(folder, engine.generate) as rig:
        session = rig.open()
        question = [{"role": "user", "content": "Hello?"}]
        heard = await asyncio.gather(*(ask(session, mode, question) for _ in range(4)))
        capture = await session.close()
    assert {each.text for each in heard} == {f"Answer {number}." for number in range(4)}
    assert len({request.seed for request, _ in engine.record}) == 4
    assert_exact(capture, engine.record)
    assert len(capture.segments) == 4


@pytest.mark.parametrize("mode", [mode for mode in MODES if not mode.sync], ids=str)
async def test_max_tokens_is_clamped_and_a_cut_reply_is_reported_as_cut(folder: Path, mode: Mode) -> None:
    engine = scripted(folder, lambda prompt, number: "x" * 10_000)
    async with running(folder, engine.generate, max_length=200) as rig:
        session = rig.open(max_tokens=1000)
        limit = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[mode.wire]
        heard = await ask(session, mode, [{"role": "user", "content": "Hello?"}], **{limit: 16_000})
        capture = await session.close()
    assert heard.reason == {"chat": "length", "responses": "incomplete", "messages": "max_tokens"}[mode.wire]
    assert heard.prompt_tokens + heard.completion_tokens == 200
    assert capture.truncated
    assert_exact(capture, engine.record)
