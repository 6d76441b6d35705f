"""The chat templates of six families through the real loader: what is known of them, and what is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from molt_plugin_gateway.chat.load import REASONING_FAMILIES, TOOL_FAMILIES, load_chat
from molt_plugin_gateway.exchange import Tool, ToolCall, Turn
from template_kit import TEMPLATE_FOLDER, TEMPLATES

MakeModel = Callable[..., str]
TOOL = Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {"at": {}}})


def _user(text: str) -> Turn:
    return Turn(role="user", content=(text,))


def _calling(*arguments: str) -> Turn:
    calls = (ToolCall(id=f"call_{text}", name="look", arguments=f'{{"at": "{text}"}}') for text in arguments)
    return Turn(role="assistant", tool_calls=tuple(calls))


def _result(text: str) -> Turn:
    return Turn(role="tool", content=(f"saw {text}",), tool_call_id=f"call_{text}")


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_conversation_with_every_kind_of_turn_keeps_its_words_in_order(
    make_model: MakeModel, family: str
) -> None:
    folder = make_model((TEMPLATE_FOLDER / f"{family}.jinja").read_text("utf-8"))
    template, _ = load_chat(folder, tool_parser="none", reasoning_parser="none")
    turns = [
        Turn(role="system", content=("w0",)), Turn(role="system", content=("w1",)), _user("w2"),
        Turn(role="system", content=("w3",)), _calling("w4", "w5"), _result("w4"), _result("w5"), _user("w6"),
        Turn(role="assistant", content=("w7",)), _user("w8"), _user("w9"),
    ]  # fmt: skip
    rendered = template.render(turns, [TOOL], generation_prompt=True)
    assert "Looks." in rendered
    places = [rendered.rfind(f"w{number}") for number in range(10)]
    # Mistral's template puts the system text beside the last question
    in_order = places[2:] if family == "mistral" else places
    assert -1 not in places
    assert in_order == sorted(in_order)
    assert rendered.count("saw") == 2


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_longer_history_extends_the_text_of_a_shorter_one_over_tool_results(
    make_model: MakeModel, family: str
) -> None:
    folder = make_model((TEMPLATE_FOLDER / f"{family}.jinja").read_text("utf-8"))
    template, _ = load_chat(folder, tool_parser="none", reasoning_parser="none")
    turns = [
        Turn(role="system", content=("s",)),
        _user("a"),
        _calling("w1"),
        _result("w1"),
        _calling("w2"),
        _result("w2"),
    ]
    shorter = template.render(turns[:4], [TOOL], generation_prompt=False)
    assert template.render(turns, [TOOL], generation_prompt=True).startswith(shorter)


@pytest.mark.parametrize(
    ("family", "tool_parser", "reasoning_parser"),
    [
        ("chatml", "hermes", "think"), ("qwen3", "hermes", "think"), ("llama3", "llama3_json", ""),
        ("mistral", "mistral", ""),
    ],
)  # fmt: skip
def test_a_family_is_told_by_its_template(family: str, tool_parser: str, reasoning_parser: str) -> None:
    text = (TEMPLATE_FOLDER / f"{family}.jinja").read_text("utf-8")
    assert next(name for mark, name in TOOL_FAMILIES if mark in text) == tool_parser
    assert next((name for mark, name in REASONING_FAMILIES if mark in text), "") == reasoning_parser
