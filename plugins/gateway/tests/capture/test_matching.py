"""Which earlier sample a request goes on from, whatever its client did to the history."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from attrs import evolve
from capture_kit import RUN, Recorder, reserialised, result, run, said, system, user
from molt_plugin_gateway.capture import canonical, forest
from molt_plugin_gateway.exchange import Turn

CALLING = said("  Let me  run it.\n\n", run("c1"), reasoning="I should run ls.\n ")


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda turn: turn,
        lambda turn: evolve(turn, reasoning=turn.reasoning.rstrip()),
        lambda turn: evolve(turn, reasoning=None),
        lambda turn: evolve(turn, content=("  Let me  ", "run it.\n\n")),
        lambda turn: evolve(turn, content=(turn.text.strip(),)),
        lambda turn: reserialised(turn, separators=(",", ":")),
        lambda turn: evolve(turn, tool_calls=(evolve(turn.tool_calls[0], id="renamed"),)),
    ],
    ids=["exact", "reasoning trimmed", "reasoning dropped", "blocks", "text trimmed", "arguments", "ids"],
)
def test_reply_is_known_again(rewrite: Callable[[Turn], Turn]) -> None:
    recorder = Recorder()
    recorder.ask([user("q")], CALLING, [RUN])
    echoed = rewrite(CALLING)
    second = recorder.ask([user("q"), echoed, result(echoed.tool_calls[0].id)], said("done"), [RUN])
    assert recorder.extends(second) == 0
    assert len(recorder.capture().segments) == 1


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda turn: evolve(turn, content=("Let me run it!",)),
        lambda turn: evolve(turn, reasoning="I should not."),
        # qwen repairs cut off JSON, opencode renames calls that it can't run
        lambda turn: evolve(turn, tool_calls=(run("c1", '{"cmd": "ls -l"}'),)),
        lambda turn: evolve(turn, tool_calls=(run("c1", '{"tool": "run", "error": "…"}', name="invalid"),)),
        # Claude Code, of arguments that are no JSON
        lambda turn: evolve(turn, tool_calls=(run("c1", '{"__unparsedToolInput": {"raw": "ls"}}'),)),
        # smolagents writes calls as prose
        lambda turn: said("Let me  run it.\nCalling tools:\n[{'id': 'c1'}]"),
    ],
    ids=["text", "reasoning", "repaired", "invalid", "unparsed", "prose"],
)
def test_edited_reply_starts_a_new_segment_in_which_it_is_not_trained(
    rewrite: Callable[[Turn], Turn],
) -> None:
    recorder = Recorder()
    recorder.ask([user("q")], CALLING, [RUN])
    edited = rewrite(CALLING)
    second = recorder.ask([user("q"), edited, user("go on")], said("done"), [RUN])
    assert recorder.extends(second) is None
    third = recorder.ask([user("q"), edited, user("go on"), said("done"), user("x")], said("end"), [RUN])
    assert recorder.extends(third) == second
    assert len(recorder.capture().segments) == 2


def test_edit_behind_a_sampled_reply_branches_off_from_it() -> None:
    recorder = Recorder()
    history = [user("q"), said("", run("c1")), result("c1")]
    recorder.ask(history[:1], history[1], [RUN])
    recorder.ask(history, said("", run("c2", "{")), [RUN])
    third = recorder.ask(
        [*history, said("", run("c2", "{}", name="invalid")), result("c2")], said("a"), [RUN]
    )
    assert recorder.extends(third) == 0
    captured = recorder.capture()
    assert [segment.num_sampled for segment in captured.segments] == [
        sum(len(recorder.generated[number][1].token_ids) for number in (0, 1)),
        len(recorder.generated[2][1].token_ids),
    ]


def test_compaction_starts_a_new_segment() -> None:
    recorder = Recorder()
    recorder.ask([system("s"), user("q")], said("", run("c1")), [RUN])
    compacted = [system("s"), user("q"), user("Summary: ran ls.")]
    second = recorder.ask(compacted, said("done"), [RUN])
    assert recorder.extends(second) is None
    assert len(recorder.capture().segments) == 2


def test_results_in_another_order_extend() -> None:
    recorder = Recorder()
    calling = said("", run("c1"), run("c2"))
    recorder.ask([user("q")], calling, [RUN])
    history = [user("q"), calling, result("c2", "b"), result("c1", "a")]
    recorder.ask(history, said("", run("c3")), [RUN])
    history = [user("q"), calling, result("c1", "a"), result("c2", "b"), said("", run("c3")), result("c3")]
    third = recorder.ask(history, said("done"), [RUN])
    assert recorder.extends(third) == 1
    assert recorder.prompt_text(third).index("b<|im_end|>") < recorder.prompt_text(third).index("a<|im_end|>")


def test_assistant_turn_of_the_client_is_context() -> None:
    recorder = Recorder()
    history = [user("setup"), said("Got it. Thanks for the context!"), user("q")]
    recorder.ask(history, said("a"))
    second = recorder.ask([*history, said("a"), user("r")], said("b"))
    assert recorder.extends(second) == 0
    segment = recorder.capture().segments[0]
    assert recorder.template.decode(segment.token_ids[segment.sampled].tolist()) == "a<|im_end|>b<|im_end|>"


def test_turn_that_the_client_drops_is_kept() -> None:
    """As mini-swe-agent does after a bad call: only a hint of the user follows."""
    recorder = Recorder()
    recorder.ask([user("q")], said("", run("c1", "{")), [RUN])
    second = recorder.ask([user("q"), user("Bad arguments.")], said("", run("c2")), [RUN])
    third = recorder.ask(
        [user("q"), user("Bad arguments."), said("", run("c2")), result("c2")], said("a"), [RUN]
    )
    assert [recorder.extends(number) for number in (second, third)] == [None, second]
    assert recorder.capture().info["orphans"] == 1


def test_resumes_that_are_merged_later_start_a_new_segment() -> None:
    recorder = Recorder()
    history = [user("q")]
    recorder.ask(history, said("one "), end="")
    history += [said("one "), user("Resume.")]
    second = recorder.ask(history, said("two"))
    merged = recorder.ask([user("q"), said("one two"), user("thanks")], said("b"))
    assert recorder.extends(second) == 0
    assert recorder.extends(merged) is None
    assert len(recorder.capture().segments) == 2


def test_several_answers_to_one_prompt_are_siblings() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("a"))
    prepared = recorder.prepare([user("q"), said("a"), user("r")])
    siblings = [recorder.finish(prepared, said(text)) for text in ("b", "c", "b")]
    assert [recorder.extends(number) for number in siblings] == [0, 0, 0]
    captured = recorder.capture()
    assert [segment.num_sampled for segment in captured.segments] == [4, 2, 2]
    assert captured.info["orphans"] == 0


def test_retry_is_a_sample_of_its_own_tree() -> None:
    recorder = Recorder()
    first = recorder.ask([user("q")], said("a"))
    again = recorder.ask([user("q")], said("a"))
    assert (
        recorder.forest.samples[first].token_ids().tolist()
        == recorder.forest.samples[again].token_ids().tolist()
    )
    captured = recorder.capture()
    assert len(captured.segments) == 2
    assert captured.ends[first] != captured.ends[again]


def test_of_equal_replies_the_one_with_these_call_ids_is_meant() -> None:
    recorder = Recorder()
    first = recorder.ask([user("q")], said("", run("c1")), [RUN])
    recorder.ask([user("q")], said("", run("c2")), [RUN])
    assert (
        recorder.extends(recorder.ask([user("q"), said("", run("c1")), result("c1")], said("a"), [RUN]))
        == first
    )


def test_of_equal_replies_the_one_with_this_reasoning_is_meant_even_one_turn_later() -> None:
    recorder = Recorder()
    histories = []
    for reasoning in ("one", "two"):
        reply = said("a", reasoning=reasoning)
        recorder.ask([user("q")], reply)
        histories.append([user("q"), reply, user("r")])
    ends = [recorder.ask(history, said("b")) for history in histories]
    for history, end in zip(histories, ends, strict=True):
        assert recorder.extends(recorder.ask([*history, said("b"), user("s")], said("c"))) == end


def test_of_equal_replies_the_exact_text_is_meant() -> None:
    recorder = Recorder()
    exact = recorder.ask([user("q")], said(" a"))
    recorder.ask([user("q")], said("a"))
    assert recorder.extends(recorder.ask([user("q"), said(" a"), user("r")], said("b"))) == exact


def test_of_equal_replies_that_of_the_same_conversation_is_meant() -> None:
    recorder = Recorder()
    for agent in ("x", "y", "z"):
        recorder.ask([user("q")], said("a"), conversation=agent)
    second = recorder.ask([user("q"), said("a"), user("r")], said("b"), conversation="y")
    assert recorder.extends(second) == 1


def test_of_equal_replies_one_that_nothing_follows_yet_is_meant() -> None:
    recorder = Recorder()
    prompts = [recorder.prepare([user("q")]) for _ in range(2)]
    for prepared in prompts:
        recorder.finish(prepared, said("a"))
    history = [user("q"), said("a"), user("r")]
    assert {recorder.extends(recorder.ask(history, said(text))) for text in ("b", "c")} == {0, 1}
    assert len(recorder.capture().segments) == 2


def test_parallel_agents_with_equal_prompts_and_replies_lose_nothing() -> None:
    recorder = Recorder()
    for history in ([user("q")], [user("q"), said("a"), user("r")]):
        prompts = [recorder.prepare(history) for _ in range(2)]
        for prepared in prompts:
            recorder.finish(prepared, said("a"))
    captured = recorder.capture(orphans="leave-out")
    assert sum(segment.num_sampled for segment in captured.segments) == 8
    assert captured.info["orphans"] == 0


def test_what_fails_between_prepare_and_commit_leaves_no_trace() -> None:
    recorder = Recorder()
    recorder.prepare([user("q")])
    recorder.ask([user("q")], said("a"))
    recorder.prepare([user("q"), said("a"), user("r")])
    second = recorder.ask([user("q"), said("a"), user("r")], said("b"))
    assert recorder.extends(second) == 0
    assert recorder.capture().info["orphans"] == 0


@pytest.mark.parametrize("num_others", [0, 300])
def test_work_is_one_digest_a_turn_and_looks_at_no_other_sample(
    num_others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    history = [user("q")]
    for number in range(20):
        reply = said(f"a{number}")
        recorder.ask(history, reply)
        history += [reply, user("next")]
    for number in range(num_others):
        recorder.ask([user("q"), said("a0"), user(f"branch {number}")], said(json.dumps(number)))
    num_digests, num_compared, num_encoded = 0, 0, 0
    plain_digest, plain_encode = canonical.digest, recorder.template.encode

    def counted_digest(turn: Turn) -> bytes:
        nonlocal num_digests
        num_digests += 1
        return plain_digest(turn)

    def counted_agrees(turn: Turn, reply: Turn) -> bool:
        nonlocal num_compared
        num_compared += 1
        return True

    def counted_encode(text: str) -> list[int]:
        nonlocal num_encoded
        num_encoded += len(text)
        return plain_encode(text)

    monkeypatch.setattr(canonical, "digest", counted_digest)
    monkeypatch.setattr(forest, "agrees", counted_agrees)
    monkeypatch.setattr(recorder.template, "encode", counted_encode)
    before = recorder.template.num_renders
    recorder.prepare(history)
    assert (num_digests, num_compared) == (len(history), 20)
    assert num_encoded == len("\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n")
    assert recorder.template.num_renders - before <= 2
