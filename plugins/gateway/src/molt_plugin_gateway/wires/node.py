"""A JSON value together with its place, so that every complaint names the field at fault.

Goes in: parsed JSON. Comes out: checked Python values, or `BadRequest` with the dotted path. Null is as good as absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from molt_plugin_gateway.exchange import BadRequest

_DEEPEST = 128
"""Levels of a schema or of arguments. Templates walk them recursively."""

_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "nothing"}


def well_formed(text: str) -> str:
    """Half a surrogate pair (a client cut a string inside an emoji) becomes U+FFFD: no tokenizer reads it."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Node:
    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str = "") -> None:
        self.value = value
        self.path = path

    def problem(self, reason: str) -> BadRequest:
        return BadRequest(f"{self.path or 'body'}: {reason}", param=self.path or None)

    def _expected(self, wanted: str) -> BadRequest:
        return self.problem(f"expected {wanted}, got {_NAMES.get(type(self.value), 'a number')}")

    @property
    def given(self) -> bool:
        return self.value is not None

    def __getitem__(self, key: str) -> Node:
        return Node(self.object().get(key), f"{self.path}.{key}" if self.path else key)

    def inside(self, key: str) -> Node:
        """What stands under `key`, or this object itself: OpenAI's two wires nest what is flat in the other."""
        return self[key] if self[key].given else self

    def object(self) -> Mapping[str, Any]:
        """Empty where it is absent."""
        if self.value is None:
            return {}
        if not isinstance(self.value, Mapping):
            raise self._expected("an object")
        return self.value

    def items(self) -> list[Node]:
        """Of a list; nothing where it is absent."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            raise self._expected("a list")
        return [Node(value, f"{self.path}.{index}") for index, value in enumerate(self.value)]

    def text(self, default: str | None = None) -> str:
        """Required where no default is given."""
        if self.value is None and default is not None:
            return default
        if not isinstance(self.value, str):
            raise self._expected("a string")
        return well_formed(self.value)

    def name(self) -> str:
        """A text that is not empty."""
        if not (text := self.text()):
            raise self.problem("must not be empty")
        return text

    def texts(self) -> tuple[str, ...]:
        """A non-empty string, a list of them, or nothing."""
        nodes = [self] if isinstance(self.value, str) else self.items()
        return tuple(node.name() for node in nodes)

    def count(self) -> int | None:
        """A whole number from 1."""
        if self.value is None:
            return None
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < 1:
            raise self._expected("a whole number from 1")
        return self.value

    def flag(self, default: bool = False) -> bool:
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            raise self._expected("a boolean")
        return self.value

    def json(self) -> str:
        """An object (absent: an empty one) as JSON text."""
        value = self.object()
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError):
            raise self.problem("must be without NaN and Infinity, and less deep") from None
        if text.count("{") + text.count("[") > _DEEPEST and not _fits(value, _DEEPEST):
            raise self.problem(f"must not be nested deeper than {_DEEPEST}")
        return well_formed(text)


def _fits(value: Any, room: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return room > 0 and all(_fits(one, room - 1) for one in inner)


def screen(root: Node, *, refused: Mapping[str, str], follow_run: Sequence[str]) -> tuple[str, ...]:
    """Refuse what can't be honoured (null, false, 0 and empty ask for nothing); name what follows the run."""
    for field, reason in refused.items():
        if root[field].value:
            raise root[field].problem(reason)
    return tuple(field for field in follow_run if root[field].given)
