"""Messages of the Anthropic wire as turns, and a turn as content blocks.

A user message may hold tool results and text: each result is a turn, the rest before and after it another. Cache marks,
signatures and callers are dropped, redacted thinking too: it is never ours.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from attrs import Factory, define

from molt_plugin_gateway.exchange import Image, ToolCall, Turn
from molt_plugin_gateway.wires.content import Parts, read_block, read_parts
from molt_plugin_gateway.wires.node import Node

UNPARSED = "__unparsedToolInput"
"""Key under which arguments travel that are no JSON object; the name that Claude Code uses itself."""

_SIGNATURE = "bW9sdA=="
"""The wire wants one beside thinking. Ours says nothing: thinking comes back as text."""


@define
class ToolChanges:
    """What a history says of the tools: references to deferred ones, additions and removals."""

    shown: dict[str, bool] = Factory(dict)
    """By name; the last word counts."""
    defined: list[Node] = Factory(list)

    def read(self, block: Node) -> bool:
        """Whether it was such a block."""
        kind = block["type"].text()
        if kind not in ("tool_reference", "tool_addition", "tool_removal"):
            return False
        tool = block if kind == "tool_reference" else block["tool"]
        match tool["type"].text():
            case "tool_reference":
                name = tool["tool_name" if tool is block else "name"].name()
            case "tool_definition":
                self.defined.append(tool["definition"])
                name = tool["definition"]["name"].name()
            case other:
                raise tool["type"].problem(f"tool changes of type {other!r} are not supported")
        self.shown[name] = kind != "tool_removal"
        return True


def read_turns(messages: Node, changes: ToolChanges) -> list[Turn]:
    turns: list[Turn] = []
    for message in messages.items():
        match role := message["role"].text():
            case "assistant":
                turns.append(_assistant(message["content"]))
            case "user" | "system":
                turns += _others(message["content"], role, changes)
            case _:
                raise message["role"].problem(f"role {role!r} is not known")
    return turns


def _others(content: Node, role: Literal["user", "system"], changes: ToolChanges) -> list[Turn]:
    if not isinstance(content.value, list):
        return [Turn(role=role, content=read_parts(content))]
    turns: list[Turn] = []
    parts: list[str | Image] = []

    def close() -> None:
        if parts:
            turns.append(Turn(role=role, content=tuple(parts)))
            parts.clear()

    for block in content.items():
        if block["type"].value == "tool_result":
            close()
            turns.append(_tool_result(block, changes))
        elif not changes.read(block):
            parts += [part for part in read_block(block) if part]
    close()
    return turns


def _tool_result(block: Node, changes: ToolChanges) -> Turn:
    """An error says so in its text; `is_error` has no other place in a chat template."""
    content = block["content"]
    parts: Parts = read_parts(content)
    if isinstance(content.value, list):
        for inner in content.items():
            changes.read(inner)
    start = next((part for part in parts if isinstance(part, str)), "")[:40].lower()
    if block["is_error"].flag() and "error" not in start:
        parts = ("Error: ", *parts)
    return Turn(role="tool", content=parts, tool_call_id=block["tool_use_id"].name())


def _assistant(content: Node) -> Turn:
    if not isinstance(content.value, list):
        return Turn(role="assistant", content=read_parts(content))
    parts: list[str | Image] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block in content.items():
        match block["type"].value:
            case "thinking":
                thoughts.append(block["thinking"].text())
            case "redacted_thinking":
                pass
            case "tool_use":
                arguments = _read_input(block["input"])
                calls.append(ToolCall(id=block["id"].name(), name=block["name"].name(), arguments=arguments))
            case _:
                parts += [part for part in read_block(block) if part]
    reasoning = "".join(thoughts) if thoughts else None
    return Turn(role="assistant", content=tuple(parts), reasoning=reasoning, tool_calls=tuple(calls))


def _read_input(value: Node) -> str:
    if value.object().keys() == {UNPARSED} and isinstance(value.value[UNPARSED], str):
        return value[UNPARSED].text()
    return value.json()


def write_blocks(turn: Turn) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if turn.reasoning is not None:
        blocks.append({"type": "thinking", "thinking": turn.reasoning, "signature": _SIGNATURE})
    if turn.text:
        blocks.append({"type": "text", "text": turn.text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _write_input(call.arguments)}
        for call in turn.tool_calls
    ]
    return blocks


def _write_input(arguments: str) -> dict[str, Any]:
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {UNPARSED: arguments}
