"""Tools for a model whose chat template does not know them: described, called and answered in plain text. Pure.

The format is the one that most open models are trained on: one JSON object between `<tool_call>`
tags. `parsers.py` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from molt_plugin_gateway.exchange import Tool, ToolCall, Turn

INSTRUCTIONS = """\
You can call tools. Each line below describes one of them in JSON:
{tools}

To call a tool, write its name and its arguments as one JSON object between tags:
<tool_call>
{{"name": "the tool's name", "arguments": {{"an argument": "its value"}}}}
</tool_call>
You may write several calls, each between its own tags. Their results come back between <tool_response> tags."""


def schema(tool: Tool) -> dict[str, Any]:
    """A tool in OpenAI's form."""
    parameters = dict(tool.parameters) or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def arguments(call: ToolCall) -> dict[str, Any]:
    """Arguments of a call as an object; what is none becomes one with the key `input`."""
    try:
        read = None if call.custom else json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        read = None
    return read if isinstance(read, dict) else {"input": call.arguments}


def in_text(turns: Sequence[Turn], tools: Sequence[Tool]) -> list[Turn]:
    """The same conversation without tools, calls or results, all of them told in the text of its turns."""
    told = results_as_users([_calls_in_text(turn) for turn in turns])
    if not tools:
        return told
    lines = "\n".join(json.dumps(schema(tool)["function"], ensure_ascii=False) for tool in tools)
    description = Turn(role="system", content=(INSTRUCTIONS.format(tools=lines),))
    # behind the caller's own instructions, which the folding joins with it
    num_leading = next((n for n, turn in enumerate(told) if turn.role != "system"), len(told))
    return [*told[:num_leading], description, *told[num_leading:]]


def results_as_users(turns: Sequence[Turn]) -> list[Turn]:
    return [
        Turn(role="user", content=("<tool_response>\n", *turn.content, "\n</tool_response>"))
        if turn.role == "tool"
        else turn
        for turn in turns
    ]


def _calls_in_text(turn: Turn) -> Turn:
    if not turn.tool_calls:
        return turn
    objects = [{"name": call.name, "arguments": arguments(call)} for call in turn.tool_calls]
    blocks = [f"<tool_call>\n{json.dumps(each, ensure_ascii=False)}\n</tool_call>" for each in objects]
    text = turn.text
    return evolve(turn, content=("\n".join([text, *blocks] if text else blocks),), tool_calls=())
