from __future__ import annotations

import json

import pytest
from molt_plugin_gateway.chat.parsers import tagged_calls
from molt_plugin_gateway.chat.tool_fallback import arguments, in_text, schema
from molt_plugin_gateway.exchange import Tool, ToolCall, Turn

TOOL = Tool(
    name="look", description="Looks {around}.", parameters={"type": "object", "properties": {"at": {}}}
)
SYSTEM = Turn(role="system", content=("be",))
USER = Turn(role="user", content=("hi",))


def test_tools_are_described_behind_the_callers_own_instructions() -> None:
    own, described, user = in_text([SYSTEM, USER], [TOOL])
    assert (own, user) == (SYSTEM, USER)
    assert described.role == "system"
    assert json.dumps(schema(TOOL)["function"]) in described.text
    assert '{"name": "the tool\'s name", "arguments": {"an argument": "its value"}}' in described.text


def test_without_tools_nothing_is_described() -> None:
    assert in_text([SYSTEM, USER], []) == [SYSTEM, USER]


@pytest.mark.parametrize("text", ["", "Let me see."])
def test_calls_are_told_as_the_parser_reads_them(text: str) -> None:
    calls = tuple(ToolCall(id=f"c{n}", name="look", arguments=f'{{"at": {n}}}') for n in range(2))
    (told,) = in_text([Turn(role="assistant", content=(text,) if text else (), tool_calls=calls)], [])
    assert not told.tool_calls
    read, found = tagged_calls(told.text, [TOOL])
    assert read.strip() == text
    assert found == tuple((call.name, call.arguments) for call in calls)


def test_each_result_is_a_user_turn() -> None:
    result = Turn(role="tool", tool_call_id="c", content=("sun", "ny"))
    assert in_text([result], [])[0].text == "<tool_response>\nsunny\n</tool_response>"
    assert [turn.role for turn in in_text([result, result], [])] == ["user", "user"]


@pytest.mark.parametrize(
    ("text", "custom", "read"),
    [
        ('{"a": 1}', False, {"a": 1}), ("", False, {}), ("{bad", False, {"input": "{bad"}),
        ("[1]", False, {"input": "[1]"}), ('{"a": 1}', True, {"input": '{"a": 1}'}),
        ("[" * 100_000, False, {"input": "[" * 100_000}),
    ],
)  # fmt: skip
def test_arguments_are_always_an_object(text: str, custom: bool, read: object) -> None:
    assert arguments(ToolCall(id="c", name="f", arguments=text, custom=custom)) == read
