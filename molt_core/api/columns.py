"""Names under which data sets carry prompts and answers, and how an environment reads them.

In goes a row, out come messages or the answer. Nothing here opens a file. A dotted name is a
path: `reward_model.ground_truth` is `row["reward_model"]["ground_truth"]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from molt_core.api.environment import Message, Row

PROMPT: Final = ("prompt", "messages", "input")
"""A string, or a chat list of `{role, content}`."""
ANSWER: Final = ("answer", "label", "ground_truth", "reward_model.ground_truth")
"""Any JSON value; the last one is how verl writes it."""


def value_at(row: Row, path: str) -> Any:
    """Value of a dotted column, None where a part of the path is missing or null."""
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def first_of(row: Row, names: Sequence[str]) -> tuple[str, Any]:
    """The first of `names` that the row has, with its value.

    Raises:
        ValueError: the row has none of them.
    """
    for name in names:
        value = value_at(row, name)
        if value is not None:
            return name, value
    raise ValueError(f"the row has no {' or '.join(names)}; its columns are {', '.join(row) or 'none'}")


def answer(row: Row) -> Any:
    """What a reply is compared with.

    Raises:
        ValueError: the row has none of `ANSWER`.
    """
    return first_of(row, ANSWER)[1]


def messages(row: Row) -> list[Message]:
    """The conversation of a row: its chat list, or its string as one user message.

    Raises:
        ValueError: the row has none of `PROMPT`, or what it has is no prompt.
    """
    name, value = first_of(row, PROMPT)
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, Sequence) or not value:
        raise ValueError(f"{name} is {_kind(value)}, wanted a string or a list of messages")
    result = [_message(name, number, item) for number, item in enumerate(value)]
    if result[-1]["role"] == "assistant":
        raise ValueError(f"{name} ends with an assistant message, wanted the turn before the reply")
    return result


def opening(row: Row) -> tuple[Mapping[str, Any], ...]:
    """What an agent starts from: as `messages`, with content parts and tool calls left as they are; may be empty.

    Raises:
        ValueError: what the row has is no prompt.
    """
    if all(value_at(row, name) is None for name in PROMPT):
        return ()
    name, value = first_of(row, PROMPT)
    if isinstance(value, str):
        return ({"role": "user", "content": value},)
    return _mappings(name, value)


def tools(row: Row) -> tuple[Mapping[str, Any], ...]:
    """Tool definitions of the row's `tools` column: a list, or its JSON text.

    Raises:
        ValueError: the column holds something else.
    """
    value = value_at(row, "tools") or ()
    return _mappings("tools", json.loads(value) if isinstance(value, str) else value)


def _mappings(name: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, Sequence) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError(f"{name} is {_kind(value)}, wanted a list of objects")
    return tuple(value)


def _message(name: str, number: int, item: Any) -> Message:
    if not isinstance(item, Mapping):
        raise ValueError(f"{name}[{number}] is {_kind(item)}, wanted {{role, content}}")
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        raise ValueError(
            f"{name}[{number}] has role {_kind(role)} and content {_kind(content)}, wanted two strings"
        )
    return {"role": role, "content": content}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    name = type(value).__name__
    if value in ([], {}, ()):
        return f"an empty {name}"
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
