"""The wires: JSON of a request to a `Call`, an `Answer` to JSON or server-sent events. Pure; no HTTP, no tokens.

A wire object serves one request, because event streams are numbered. Whatever JSON `read` is given, it returns a
call or raises `BadRequest` with the path of the field at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from molt_plugin_gateway.exchange import Answer, BadRequest, Call
from molt_plugin_gateway.wires.chat import Chat
from molt_plugin_gateway.wires.messages import CountTokens, Messages
from molt_plugin_gateway.wires.responses import Responses


class Wire(Protocol):
    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Call:
        """Raises BadRequest."""
        ...

    def whole(self, answer: Answer, call: Call) -> dict[str, Any]:
        """The body of a plain reply."""
        ...

    def begin(self, answer_id: str, created_s: int, call: Call) -> Iterator[bytes]:
        """Events to send with the headers. Id and time must be those of the answer."""
        ...

    def keepalive(self) -> bytes:
        """An event that changes nothing; clients count data, not comments, as life."""
        ...

    def events(self, answer: Answer, call: Call) -> Iterator[bytes]:
        """Everything after `begin`, the end of the stream included."""
        ...

    def error(self, problem: BadRequest) -> dict[str, Any]:
        """Body of an error reply."""
        ...

    def error_event(self, problem: BadRequest) -> Iterator[bytes]:
        """An error after the headers went out, and the end of the stream."""
        ...


WIRES: Mapping[str, Callable[[], Wire]] = {
    "/chat/completions": Chat,
    "/responses": Responses,
    "/messages": Messages,
    "/messages/count_tokens": CountTokens,
}
"""By route, without `/v1`."""
