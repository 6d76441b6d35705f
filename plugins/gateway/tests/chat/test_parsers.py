from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_gateway.chat.load import OPENINGS
from molt_plugin_gateway.chat.parsers import ParsedReply, Parser, tagged_calls, think_tags
from molt_plugin_gateway.exchange import Tool

TOOL = Tool(name="get_weather")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>'
READ = ("get_weather", '{"city": "Köln"}')


def _parser(*, thinks_first: bool = False) -> Parser:
    return Parser(
        reasoning=think_tags, calls=tagged_calls, begin=OPENINGS["hermes"], thinks_first=thinks_first
    )


def _parse(text: str, prompt_tail: str = "") -> ParsedReply:
    return _parser().parse(text, [TOOL], prompt_tail=prompt_tail)


def test_a_plain_reply_is_its_text_with_every_space() -> None:
    assert _parse("  two  spaces \n\n") == ParsedReply(text="  two  spaces \n\n", reasoning=None, calls=())


def test_calls_leave_the_text_around_them() -> None:
    assert _parse(f"Let me see.\n{CALL}\n{CALL}") == ParsedReply(
        text="Let me see.\n", reasoning=None, calls=(READ, READ)
    )
    assert _parse(f"\n\n{CALL}\nand then").text == "\nand then"


@pytest.mark.parametrize("end", ["", "\n", "\n</tool_call>"])
def test_the_last_call_may_lack_its_end(end: str) -> None:
    assert _parse('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}' + end).calls == (
        READ,
    )


@pytest.mark.parametrize(
    "block",
    [
        "{bad}", "", "[]", "null", '"name"', '{"name": "f"', '{"name": 1, "arguments": {}}',
        '{"arguments": {}}', '{"name": "f", "arguments": [1]}', '{"name": "f", "arguments": "no JSON"}',
        '{"name": "f", "arguments": {"x": NaN}}', '{"name": "f", "arguments": {"x": "\\ud800"}}',
        '{"name": "f", "arguments": ' + "[" * 5000, '{"name": "f", "arguments": {}} and more',
    ],
)  # fmt: skip
def test_what_is_no_call_stays_text_and_the_other_calls_count(block: str) -> None:
    text = f"a <tool_call>{block}</tool_call> b"
    assert _parse(text) == ParsedReply(text=text, reasoning=None, calls=())
    both = _parse(f"{CALL}<tool_call>{block}</tool_call>")
    assert both == ParsedReply(text=f"<tool_call>{block}</tool_call>", reasoning=None, calls=(READ,))


def test_arguments_may_be_missing_or_written_as_a_string_or_hold_line_breaks() -> None:
    assert _parse('<tool_call>{"name": "f"}</tool_call>').calls == (("f", "{}"),)
    assert _parse('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>').calls == (
        ("f", '{"a": 1}'),
    )
    ((_, arguments),) = _parse('<tool_call>{"name": "f", "arguments": {"code": "a\nb"}}</tool_call>').calls
    assert json.loads(arguments) == {"code": "a\nb"}


@pytest.mark.parametrize(
    ("reply", "prompt_tail"),
    [
        ("<think>\nSo.\n</think>\n\nHello", ""),
        ("\n<think>\nSo.\n</think>\n\nHello", ""),
        ("So.\n</think>\n\nHello", "<think>\n"),
    ],
)
def test_reasoning_is_split_off_wherever_its_first_tag_stands(reply: str, prompt_tail: str) -> None:
    assert _parse(reply, prompt_tail) == ParsedReply(text="Hello", reasoning="So.", calls=())


def test_calls_after_reasoning_are_read_and_those_inside_it_are_not() -> None:
    parsed = _parse(f"<think>maybe {CALL}</think>\n{CALL}")
    assert parsed.reasoning == f"maybe {CALL}"
    assert parsed.calls == (READ,)
    assert parsed.text == ""


def test_reasoning_that_was_cut_off_is_reasoning() -> None:
    assert _parse("<think>\nSo") == ParsedReply(text="", reasoning="So", calls=())
    assert _parse("So", "<think>\n") == ParsedReply(text="", reasoning="So", calls=())


@pytest.mark.parametrize("text", ["Tags like <think> are fun", "closed </think> here"])
def test_tags_in_the_middle_of_a_text_are_text(text: str) -> None:
    assert _parse(text) == ParsedReply(text=text, reasoning=None, calls=())


def test_a_prompt_that_closes_the_thinking_leaves_none() -> None:
    assert _parse("Hello", "<think>\n\n</think>\n\n") == ParsedReply(text="Hello", reasoning=None, calls=())
    assert _parse("<think>\n\n</think>\n\nHello").reasoning is None


@pytest.mark.parametrize("thinks_first", [False, True])
@pytest.mark.parametrize(
    ("tool", "rest"),
    [
        (TOOL, '{"city": "Köln"}}\n</tool_call>'),
        ("required", '{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>'),
    ],
)
def test_a_forced_opening_and_what_follows_are_one_call(
    tool: Tool | Literal["required"], rest: str, thinks_first: bool
) -> None:
    parser = _parser(thinks_first=thinks_first)
    tail = ("<think>\n" if thinks_first else "") + parser.opening(tool)
    assert parser.parse(rest, [TOOL], prompt_tail=tail) == ParsedReply(text="", reasoning=None, calls=(READ,))


def test_a_reader_that_raises_leaves_the_reply_as_text() -> None:
    def broken(text: str, other: object) -> tuple[str, tuple[tuple[str, str], ...]]:
        raise RuntimeError(text)

    parser = Parser(reasoning=think_tags, calls=broken, begin=None, thinks_first=False)
    assert parser.parse("<think>a</think>b", [], prompt_tail="") == ParsedReply(
        text="b", reasoning="a", calls=()
    )


PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        CALL,
        '{"name": "f"',
        "\n",
        " text ",
        "\\",
        "{",
        "}",
    ]
)


@given(st.lists(PIECES | st.text(max_size=5)), st.sampled_from(["", "<think>\n", "<tool_call>\n"]))
def test_no_reply_makes_it_raise_and_no_call_is_invented(pieces: list[str], prompt_tail: str) -> None:
    text = "".join(pieces)
    parsed = _parse(text, prompt_tail)
    assert len(parsed.calls) <= (prompt_tail + text).count("<tool_call>")
    for name, arguments in parsed.calls:
        assert name
        assert isinstance(json.loads(arguments), dict)
    if "<" not in text and not prompt_tail:
        assert parsed == ParsedReply(text=text, reasoning=None, calls=())
