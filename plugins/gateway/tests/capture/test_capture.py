"""What of a session trains, what is left out and why, and how the session ended."""

from __future__ import annotations

import pytest
from capture_kit import RUN, Recorder, result, run, said, sampled_of, system, user

TITLE = '{"type": "object", "properties": {"title": {"type": "string"}}}'


def test_conversation_is_one_segment_and_each_sample_ends_where_it_says() -> None:
    recorder = Recorder()
    history = [system("s"), user("q")]
    for number in range(3):
        recorder.ask(history, said(f"a{number}"))
        history += [said(f"a{number}"), user("next")]
    captured = recorder.capture()
    assert len(captured.segments) == 1
    assert [captured.ends[number].segment for number in range(3)] == [0, 0, 0]
    assert (captured.prompt_text, captured.reply_text, captured.truncated) == ("q", "a2", False)
    assert captured.info == {
        "calls": 3, "samples": 3, "roots": 1, "undelivered": 0, "constrained": 0, "side_calls": 0, "orphans": 0,
    }  # fmt: skip


def test_nothing_sampled_is_an_empty_capture() -> None:
    captured = Recorder().capture()
    assert (captured.segments, captured.left_out, captured.reply_text) == ((), (), "")
    assert not captured.truncated


def test_shared_sample_trains_in_the_first_segment_only() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("shared"))
    for text in ("b", "c"):
        recorder.ask([user("q"), said("shared"), user(text)], said(text))
    first, second = recorder.capture().segments
    assert first.num_sampled == len("shared") + 1 + 2
    assert second.num_sampled == 2
    shared = recorder.forest.samples[0].num_tokens
    assert first.token_ids[:shared].tolist() == second.token_ids[:shared].tolist()


@pytest.mark.parametrize("how", [{}, {"kind": "title"}, {"json_schema": TITLE}])
def test_title_call_is_a_side_call(how: dict[str, str]) -> None:
    recorder = Recorder()
    recorder.ask([system("Make a title."), user("q")], said("A title"), **how)
    recorder.ask([user("q")], said("a"), [RUN])
    captured = recorder.capture()
    assert [each.reason for each in captured.left_out] == [
        "constrained" if "json_schema" in how else "side_call"
    ]
    assert captured.info["side_calls"] == 1
    assert list(captured.ends) == [1]
    assert (captured.prompt_text, captured.reply_text) == ("q", "a")
    trained = recorder.capture(side_calls="train")
    assert len(trained.left_out) == int("json_schema" in how)


def test_side_call_on_the_way_is_context_of_what_follows() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("", run("c1")), [RUN])
    history = [user("q"), said("", run("c1")), result("c1")]
    recorder.ask(history, said("noted"), [RUN], kind="memory")
    recorder.ask([*history, said("noted"), user("r")], said("b"), [RUN])
    captured = recorder.capture()
    assert [len(sampled_of(segment)) for segment in captured.segments] == [len('run({"cmd":  "ls"})') + 1 + 2]
    assert "noted" in recorder.template.decode(captured.segments[0].token_ids.tolist())
    assert [sampled_of(each.segment)[-1][0] for each in captured.left_out] == [
        recorder.generated[1][1].token_ids[-1]
    ]


def test_agent_without_tools_makes_no_side_calls_nor_does_a_plan_that_is_continued_with_tools() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("a"))
    assert recorder.capture().info["side_calls"] == 0
    recorder.ask([user("q"), said("a"), user("r")], said("", run("c1")), [RUN])
    assert recorder.capture().info["side_calls"] == 0
    recorder.ask([user("q"), said("a"), user("Summarise.")], said("s"))
    assert recorder.capture().info["side_calls"] == 1


def test_constrained_reply_never_trains() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("{}"), json_schema="{}")
    captured = recorder.capture(orphans="train", side_calls="train")
    assert [each.reason for each in captured.left_out] == ["constrained"]
    assert captured.reply_text == "{}"


def test_repeat_of_a_delivered_request_orphans_the_first_answer() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("a"), end="")
    recorder.ask([user("q")], said("whole"))
    captured = recorder.capture(orphans="leave-out")
    assert [each.reason for each in captured.left_out] == ["orphan"]
    assert list(captured.ends) == [1]
    assert captured.reply_text == "whole"
    assert not captured.truncated
    assert len(recorder.capture().segments) == 2


def test_replaced_reply_is_an_orphan_unless_another_conversation_replaced_it() -> None:
    for agent, expected in (("main", 1), ("other", 0)):
        recorder = Recorder()
        recorder.ask([user("q")], said("a"), conversation="main")
        recorder.ask([user("q"), said("edited"), user("r")], said("b"), conversation=agent)
        assert recorder.capture().info["orphans"] == expected


def test_reply_whose_thinking_the_template_drops_later_is_no_orphan() -> None:
    recorder = Recorder("qwen3")
    recorder.ask([user("q")], said("a", reasoning="because"))
    recorder.ask([user("q"), said("a", reasoning="because"), user("r")], said("b"))
    captured = recorder.capture()
    assert len(captured.segments) == 2
    assert captured.info["orphans"] == 0


def test_last_answers_of_agents_that_ran_at_the_same_time_are_no_orphans() -> None:
    recorder = Recorder()
    prompts = [recorder.prepare([user("q")]) for _ in range(3)]
    for prepared, text in zip(prompts, "abc", strict=True):
        recorder.finish(prepared, said(text))
    history = [user("q"), said("b"), user("r")]
    recorder.ask(history, said("d"))
    recorder.ask([*history, said("d"), user("s")], said("e"))
    assert recorder.capture().info["orphans"] == 0


def test_reply_that_was_gone_on_from_is_no_orphan_when_another_branch_passes_it() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("a"))
    recorder.ask([user("q"), said("a"), user("r")], said("b"))
    recorder.ask([user("q"), user("anew")], said("c"))
    assert recorder.capture().info["orphans"] == 0


def test_undelivered_reply_is_an_orphan_unless_it_shows_up_in_a_history() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("a"), delivered=False)
    recorder.ask([user("q"), said("a"), user("r")], said("b"), delivered=False)
    captured = recorder.capture(orphans="leave-out")
    assert list(captured.ends) == [0]
    assert (captured.info["orphans"], captured.info["undelivered"]) == (1, 2)
    assert captured.reply_text == "a"


def test_left_out_leaf_leaves_no_tail_on_a_segment() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("a"))
    recorder.ask([user("q"), said("a"), user("r")], said("b"), delivered=False)
    (segment,) = recorder.capture(orphans="leave-out").segments
    assert segment.sampled[-1]


def test_rollout_is_truncated_if_its_last_reply_was_cut_off() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("a"), end="")
    assert recorder.capture().truncated
    recorder.ask([user("q"), said("a"), user("Resume.")], said("b"))
    assert not recorder.capture().truncated


def test_main_conversation_is_that_of_the_first_request() -> None:
    recorder = Recorder()
    main = recorder.prepare([user("q")], [RUN], conversation="main")
    recorder.ask([user("sub")], said("c"), [RUN], conversation="sub")
    recorder.finish(main, said("a"))
    recorder.ask([user("sub"), said("c"), user("r")], said("cut"), [RUN], conversation="sub", end="")
    captured = recorder.capture()
    assert (captured.prompt_text, captured.reply_text, captured.truncated) == ("q", "a", False)
