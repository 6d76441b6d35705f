"""Input items of the Responses wire as turns, and turns as output items.

An answer is several items: reasoning, message, calls, in this order. Items that follow each other in this order are
one assistant turn again; where the order starts over, a new turn begins. Ids of items, status, phase and annotations
are dropped.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from molt_plugin_gateway.exchange import Image, TokenLogprob, ToolCall, Turn
from molt_plugin_gateway.wires.content import Parts, read_parts, read_turn
from molt_plugin_gateway.wires.node import Node, well_formed
from molt_plugin_gateway.wires.openai import openai_logprobs
from molt_plugin_gateway.wires.tools import flat_name, wire_name

_SEAL = "molt."
"""Begins the `encrypted_content` that is ours. The rest is the reasoning, base64url: nothing is secret about it."""

_CONFIGURATION = ("additional_tools", "tool_search_output", "configuration_update")
"""Items that are no turns. Those with tools are read with the tools of the request."""

_REASONING, _MESSAGE, _CALL = range(3)


def read_turns(items: Node) -> list[Turn]:
    if isinstance(items.value, str):
        return [Turn(role="user", content=read_parts(items))]
    turns: list[Turn] = []
    open_turn: list[tuple[int, Any]] = []

    def close() -> None:
        if open_turn:
            turns.append(_assistant(open_turn))
            open_turn.clear()

    for item in items.items():
        piece = _assistant_piece(item)
        if piece is None:
            turn = _other_turn(item)
            if turn is not None:
                close()
                turns.append(turn)
        else:
            if open_turn and (piece[0] < open_turn[-1][0] or piece[0] == open_turn[-1][0] == _MESSAGE):
                close()
            open_turn.append(piece)
    close()
    return turns


def _kind(item: Node) -> str:
    """Messages may come without a type; a bare id is a reference."""
    return item["type"].text("message" if item["role"].given else "item_reference")


def _assistant_piece(item: Node) -> tuple[int, Any] | None:
    match _kind(item):
        case "reasoning":
            return _REASONING, _read_reasoning(item)
        case "message" if item["role"].value == "assistant":
            return _MESSAGE, read_parts(item["content"])
        case "function_call" | "custom_tool_call" as kind:
            custom = kind == "custom_tool_call"
            namespace = item["namespace"].text("")
            return _CALL, ToolCall(
                id=item["call_id"].name(),
                name=flat_name(namespace, item["name"].name()),
                arguments=item["input"].text() if custom else item["arguments"].text("{}"),
                namespace=namespace,
                custom=custom,
            )
    return None


def _assistant(pieces: Sequence[tuple[int, Any]]) -> Turn:
    thoughts = [piece for stage, piece in pieces if stage == _REASONING and piece is not None]
    content: Parts = next((piece for stage, piece in pieces if stage == _MESSAGE), ())
    return Turn(
        role="assistant",
        content=content,
        reasoning="".join(thoughts) if thoughts else None,
        tool_calls=tuple(piece for stage, piece in pieces if stage == _CALL),
    )


def _other_turn(item: Node) -> Turn | None:
    match kind := _kind(item):
        case "message":
            return read_turn(item["role"], item["content"])
        case "function_call_output" | "custom_tool_call_output":
            return Turn(role="tool", content=read_parts(item["output"]), tool_call_id=item["call_id"].name())
        case "item_reference":
            raise item.problem("nothing is stored here; send the item itself (store: false)")
        case _ if kind in _CONFIGURATION:
            return None
        case _:
            raise item["type"].problem(f"items of type {kind!r} are not supported")


def _read_reasoning(item: Node) -> str | None:
    sealed = item["encrypted_content"].text("")
    if sealed.startswith(_SEAL):
        try:
            return well_formed(
                base64.urlsafe_b64decode(sealed.removeprefix(_SEAL)).decode("utf-8", "replace")
            )
        except ValueError:
            raise item["encrypted_content"].problem("was changed since it was sent from here") from None
    parts = read_parts(item["content"]) or read_parts(item["summary"])
    return "".join(part for part in parts if not isinstance(part, Image)) or None


def write_items(
    turn: Turn, answer_id: str, *, status: str, logprobs: Sequence[TokenLogprob]
) -> list[dict[str, Any]]:
    """Output items in order. `status` is that of the last one; the others are completed."""
    items: list[dict[str, Any]] = []
    if turn.reasoning is not None:
        seal = base64.urlsafe_b64encode(turn.reasoning.encode("utf-8", "replace")).decode()
        thought = {"type": "reasoning_text", "text": turn.reasoning}
        items.append(
            {
                "type": "reasoning",
                "id": f"rs_{answer_id}",
                "summary": [],
                "content": [thought],
                "encrypted_content": _SEAL + seal,
            }
        )
    if turn.text:
        text = {
            "type": "output_text",
            "text": turn.text,
            "annotations": [],
            "logprobs": openai_logprobs(logprobs),
        }
        items.append({"type": "message", "id": f"msg_{answer_id}", "role": "assistant", "content": [text]})
    for index, call in enumerate(turn.tool_calls):
        kind = (
            {"type": "custom_tool_call", "input": call.arguments}
            if call.custom
            else {"type": "function_call", "arguments": call.arguments}
        )
        namespace = {"namespace": call.namespace} if call.namespace else {}
        call_id = {"id": f"fc_{answer_id}_{index}", "call_id": call.id, "name": wire_name(call)}
        items.append({**kind, **call_id, **namespace})
    for item in items:
        item["status"] = status if item is items[-1] else "completed"
    return items
