"""Which tokens a request is answered from, template by template."""

from __future__ import annotations

import pytest
from capture_kit import RUN, Recorder, result, run, said, system, user
from molt_plugin_gateway.exchange import ContextOverflow, Tool
from template_kit import TEMPLATES, THINKING

SHOWS_ALL = ("chatml", "llama3", "gemma")
"""Families of which any later question extends a reply without thinking and tools."""


@pytest.mark.parametrize("family", TEMPLATES)
def test_first_prompt_is_the_rendered_conversation(family: str) -> None:
    recorder = Recorder(family)
    prepared = recorder.prepare([system("s"), user("hello")], [RUN])
    template = recorder.template
    text = template.render([system("s"), user("hello")], [RUN], generation_prompt=True)
    assert prepared.token_ids.tolist() == template.encode(text)
    assert prepared.num_matched == 0


@pytest.mark.parametrize("family", [*SHOWS_ALL, "qwen3"])
def test_extension_is_prompt_and_reply_and_what_the_template_adds(family: str) -> None:
    recorder = Recorder(family)
    opening = [system("s"), user("hello")]
    recorder.ask(opening, said("hello there"))
    prepared = recorder.prepare([*opening, said("hello there"), user("go on")])
    first, generation = recorder.generated[0]
    text = recorder.template.render(
        [*opening, said("hello there"), user("go on")], [], generation_prompt=True
    )
    end = recorder.template.end_texts[0]
    added = text[text.index("hello there" + end) + len("hello there" + end) :]
    assert prepared.token_ids.tolist() == [
        *first.token_ids.tolist(),
        *generation.token_ids.tolist(),
        *recorder.template.encode(added),
    ]
    assert prepared.num_matched == len(first.token_ids) + len(generation.token_ids)
    # as sampled, one token a byte, where the tokenizer knows longer ones
    assert prepared.token_ids.tolist() != recorder.template.encode(text)


@pytest.mark.parametrize("family", [*SHOWS_ALL, "qwen3"])
def test_reply_cut_off_by_a_limit_is_closed(family: str) -> None:
    recorder = Recorder(family)
    recorder.ask([user("q")], said("cut of"), end="")
    second = recorder.ask([user("q"), said("cut of"), user("Resume")], said("f"))
    template = recorder.template
    whole = template.render([user("q"), said("cut of"), user("Resume")], [], generation_prompt=True)
    assert recorder.prompt_text(second) == whole
    assert recorder.extends(second) == 0


def test_end_token_that_was_sampled_stays_where_the_template_writes_another() -> None:
    recorder = Recorder("llama3")
    recorder.ask([user("q")], said("a"), end="<|eom_id|>")
    second = recorder.ask([user("q"), said("a"), user("r")], said("b"))
    assert "a<|eom_id|><|start_header_id|>user" in recorder.prompt_text(second)


def test_reply_of_nothing_but_the_end_token_is_extended() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said(""))
    second = recorder.ask([user("q"), said(""), user("?")], said("a"))
    assert recorder.extends(second) == 0
    assert recorder.capture().segments[0].num_sampled == 1 + len("a") + 1


@pytest.mark.parametrize("family", TEMPLATES)
def test_results_of_tools_extend_the_reply_that_called(family: str) -> None:
    """DeepSeek's does not: its prompt ends in `<think>`, which it never shows again."""
    recorder = Recorder(family)
    calling = said("", run("c1"))
    recorder.ask([user("q")], calling, [RUN])
    second = recorder.ask([user("q"), calling, result("c1")], said("done"), [RUN])
    assert recorder.extends(second) == (None if family == "deepseek" else 0)
    assert len(recorder.capture().segments) == (2 if family == "deepseek" else 1)


def test_deepseek_extends_a_reply_to_results_of_tools() -> None:
    recorder = Recorder("deepseek")
    history = [user("q"), said("", run("c1")), result("c1")]
    recorder.ask(history, said("", run("c2")), [RUN])
    second = recorder.ask([*history, said("", run("c2")), result("c2")], said("done"), [RUN])
    assert recorder.extends(second) == 0


def test_qwen_keeps_thinking_over_results_of_tools_and_drops_it_before_a_question() -> None:
    recorder = Recorder("qwen3")
    history = [user("q"), said("", run("c1"), reasoning="Let me look.")]
    recorder.ask(history[:1], history[1], [RUN])
    history += [result("c1"), said("done", reasoning="So.")]
    over_result = recorder.ask(history[:3], history[3], [RUN])
    after_question = recorder.ask([*history, user("next")], said("b"), [RUN])
    assert recorder.extends(over_result) == 0
    assert recorder.extends(after_question) is None
    assert "Let me look." not in recorder.prompt_text(after_question)
    assert [segment.num_sampled > 0 for segment in recorder.capture().segments] == [True, True]


@pytest.mark.parametrize("reasoning", ["a", "the answer is a"])
def test_dropped_thinking_is_noticed_even_if_the_text_repeats_it(reasoning: str) -> None:
    recorder = Recorder("deepseek")
    history = [user("q"), said("", run("c1")), result("c1"), said("the answer is a", reasoning=reasoning)]
    recorder.ask(history[:3], history[3], [RUN])
    assert recorder.extends(recorder.ask([*history, user("r")], said("b"), [RUN])) is None


@pytest.mark.parametrize("family", THINKING)
def test_thinking_that_the_client_drops_is_put_back_where_the_template_shows_it(family: str) -> None:
    recorder = Recorder(family)
    recorder.ask([user("q")], said("", run("c1"), reasoning="Because."), [RUN])
    second = recorder.ask([user("q"), said("", run("c1")), result("c1")], said("done"), [RUN])
    assert ("Because." in recorder.prompt_text(second)) == (family != "deepseek")
    assert recorder.extends(second) == (None if family == "deepseek" else 0)


def test_thinking_that_the_client_drops_is_put_back_in_a_new_tree_too() -> None:
    recorder = Recorder("chatml")
    recorder.ask([user("q")], said("a", reasoning="Because."), [RUN])
    other = Tool(name="other", description="", parameters={})
    second = recorder.ask([user("q"), said("a"), user("r")], said("b"), [RUN, other])
    assert recorder.extends(second) is None
    assert "Because." in recorder.prompt_text(second)


def test_mistral_moves_its_tools_to_the_next_question_and_starts_anew() -> None:
    recorder = Recorder("mistral")
    history = [user("q"), said("a"), user("r")]
    recorder.ask(history[:1], history[1], [RUN])
    assert recorder.extends(recorder.ask(history, said("b"), [RUN])) is None


def test_other_tools_start_anew() -> None:
    recorder = Recorder()
    recorder.ask([user("q")], said("a"), [RUN])
    grown = [RUN, Tool(name="more", description="", parameters={})]
    second = recorder.ask([user("q"), said("a"), user("r")], said("b"), grown)
    assert recorder.extends(second) is None
    third = recorder.ask([user("q"), said("a"), user("r"), said("b"), user("s")], said("c"), grown)
    assert recorder.extends(third) == second


def test_forced_opening_is_given_and_not_sampled() -> None:
    recorder = Recorder()
    opening = '<tool_call>\n{"name": "run", "arguments": '
    prepared = recorder.prepare([user("q")], [RUN], opening=opening)
    assert recorder.template.decode(prepared.token_ids.tolist()).endswith(opening)
    assert prepared.prompt_tail == "<|im_start|>assistant\n" + opening
    recorder.finish(prepared, said("", run("c1")))
    second = recorder.ask([user("q"), said("", run("c1")), result("c1")], said("done"), [RUN])
    assert recorder.extends(second) == 0
    assert recorder.prompt_text(second).count(opening) == 1


def test_prompt_tail_is_empty_where_the_template_adds_no_generation_prompt() -> None:
    recorder = Recorder("deepseek")
    assert recorder.prepare([user("q")]).prompt_tail == "<｜Assistant｜><think>\n"
    assert recorder.prepare([user("q"), said("", run("c1")), result("c1")]).prompt_tail == ""


@pytest.mark.parametrize("family", TEMPLATES)
def test_history_that_ends_with_the_assistant_gets_a_generation_prompt(family: str) -> None:
    recorder = Recorder(family)
    recorder.ask([user("q")], said("part one"), end="")
    second = recorder.ask([user("q"), said("part one")], said(", part two"))
    text = recorder.template.render([user("q"), said("part one")], [], generation_prompt=True)
    assert "part one" + text.rpartition("part one")[2] in recorder.prompt_text(second)
    assert recorder.extends(second) == (None if family == "deepseek" else 0)


@pytest.mark.parametrize("family", TEMPLATES)
def test_system_turn_alone_is_a_request(family: str) -> None:
    recorder = Recorder(family)
    recorder.ask([system("s")], said("a"))
    recorder.ask([system("s"), said("a"), user("q")], said("b"))
    recorder.capture()


def test_text_that_looks_like_an_end_token_does_not_end_the_reply() -> None:
    recorder = Recorder("mistral")
    text = "<s>old</s> new"
    recorder.ask([user("q")], said(text))
    second = recorder.ask([user("q"), said(text), user("r")], said("b"))
    assert recorder.extends(second) == 0
    assert recorder.prompt_text(second).endswith("<s>old</s> new</s>[INST] r[/INST]")


def test_prompt_may_leave_room_for_one_token() -> None:
    num_tokens = len(Recorder().prepare([user("q")]).token_ids)
    assert len(Recorder(max_length=num_tokens + 1).prepare([user("q")]).token_ids) == num_tokens
    with pytest.raises(ContextOverflow):
        Recorder(max_length=num_tokens).prepare([user("q")])


def test_prompt_without_room_for_a_reply_is_refused_and_leaves_the_session_as_it_was() -> None:
    recorder = Recorder(max_length=60)
    recorder.ask([user("q")], said("a"))
    with pytest.raises(ContextOverflow) as raised:
        recorder.prepare([user("q"), said("a"), user("x" * 60)])
    assert raised.value.max_length == 60
    assert raised.value.num_tokens > 60
    assert recorder.extends(recorder.ask([user("q"), said("a"), user("r")], said("b"))) == 0
