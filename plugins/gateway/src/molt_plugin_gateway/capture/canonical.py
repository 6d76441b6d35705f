"""The form in which turns are compared, as digests.

Clients send a conversation back with small differences: strings as lists of blocks, arguments of
tool calls as other JSON text, results of parallel calls in another order, text trimmed, reasoning
trimmed or absent. Turns that differ in nothing else have one digest. Reasoning and the ids of an
assistant's calls are not part of it: several samples may share a digest, and `agrees` and
`same_calls` tell them apart. One digest a turn, and nothing longer than a turn is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from itertools import groupby

from molt_plugin_gateway.exchange import Turn


def digests(turns: Sequence[Turn]) -> list[bytes]:
    """One digest a turn; those of neighbouring results of tools are in the order of their call ids."""
    runs = groupby(turns, key=lambda turn: turn.role == "tool")
    # all other turns have the empty id, so that sorting leaves them as they are
    return [digest(turn) for _, run in runs for turn in sorted(run, key=lambda turn: turn.tool_call_id)]


def digest(turn: Turn) -> bytes:
    """16 bytes."""
    content: list[object] = []
    for part in turn.content:
        if not isinstance(part, str):
            content.append([blake2b(part.url.encode("utf-8", "surrogatepass")).hexdigest()])
        elif content and isinstance(content[-1], str):
            content[-1] += part
        else:
            content.append(part)
    if turn.role == "assistant":
        content = [part for part in (_trimmed(part) for part in content) if part]
    calls = [[call.name, _arguments(call.arguments)] for call in turn.tool_calls]
    # JSON with escapes: an unambiguous form that also takes lone surrogates
    form = json.dumps([turn.role, content, calls, turn.tool_call_id])
    return blake2b(form.encode("ascii"), digest_size=16).digest()


def agrees(turn: Turn, reply: Turn) -> bool:
    """Whether a turn with the digest of `reply` may be that reply: its reasoning is equal, or was dropped."""
    reasoning = (turn.reasoning or "").strip()
    return not reasoning or reasoning == (reply.reasoning or "").strip()


def same_calls(turn: Turn, reply: Turn) -> bool:
    """Whether the calls have the ids that were minted for `reply`."""
    return [call.id for call in turn.tool_calls] == [call.id for call in reply.tool_calls]


def _trimmed(part: object) -> object:
    return part.strip() if isinstance(part, str) else part


def _arguments(text: str) -> str:
    """Arguments with equal meaning as equal text; what is no JSON stands for itself."""
    try:
        # JavaScript writes 1.0 as 1
        read = json.loads(text or "{}", parse_float=_number)
        return json.dumps(read, sort_keys=True)
    except (ValueError, RecursionError):
        return "=" + text


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number
