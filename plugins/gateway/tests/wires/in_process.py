"""Stock SDK clients whose requests are read and answered by our wires in this process.

`Served` plays the part of the server: it reads the request, keeps the call, and sends the answer that a test wants
in the form that the request asks for, in small pieces as a socket would.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx2
import openai
from molt_plugin_gateway.exchange import Answer, BadRequest, Call, Choice, ToolCall, Turn, Usage
from molt_plugin_gateway.wires import WIRES

USAGE = Usage(prompt_tokens=100, completion_tokens=20, reasoning_tokens=5, cached_tokens=60)

TURN = Turn(
    role="assistant",
    content=("  Let me  run it — ok.\n\n",),
    reasoning="I should run echo.\n ",
    tool_calls=(
        ToolCall(id="call_gw0001x0", name="bash", arguments='{"cmd":  "echo hi"}'),
        ToolCall(id="call_gw0001x1", name="bash", arguments='{"cmd": "ls", "n": 2.50}'),
    ),
)
"""Odd spacing on purpose: whatever is re-serialised shows."""


def choice(turn: Turn = TURN, **more: Any) -> Choice:
    reason = "tool_calls" if turn.tool_calls else "stop"
    return Choice(**({"turn": turn, "finish_reason": reason} | more))


class Bytes(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body in small pieces, so that frames are cut anywhere."""

    def __init__(self, body: bytes, size: int = 61) -> None:
        self.pieces = [body[at : at + size] for at in range(0, len(body), size)]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.pieces)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


class Served(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    def __init__(self, *choices: Choice, problem: BadRequest | None = None, late: bool = False) -> None:
        self.choices = choices or (choice(),)
        self.problem = problem
        self.late = late
        """Whether the problem shows only after the headers were sent."""
        self.calls: list[Call] = []
        self.bodies: list[dict[str, Any]] = []
        self.sent = b""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._respond(request, request.read())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._respond(request, await request.aread())

    def _respond(self, request: httpx2.Request, raw: bytes) -> httpx2.Response:
        wire = WIRES[request.url.path.removeprefix("/s/abc").removeprefix("/v1")]()
        body = json.loads(raw)
        self.bodies.append(body)
        try:
            call = wire.read(body, request.headers)
        except BadRequest as problem:
            return httpx2.Response(400, json=wire.error(problem), request=request)
        self.calls.append(call)
        if self.problem is not None and not self.late:
            return httpx2.Response(400, json=wire.error(self.problem), request=request)
        answer = Answer(id="42", created_s=1_700_000_000, model=call.model, choices=self.choices, usage=USAGE)
        if not call.stream:
            return httpx2.Response(200, json=wire.whole(answer, call), request=request)
        end = wire.events(answer, call) if self.problem is None else wire.error_event(self.problem)
        opening = [*wire.begin("42", 1_700_000_000, call), wire.keepalive(), wire.keepalive()]
        self.sent = b"".join([*opening, *end])
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=Bytes(self.sent), request=request)

    def events(self) -> list[dict[str, Any]]:
        """Data of what was streamed last, without `[DONE]`."""
        lines = self.sent.decode("ascii").splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]

    def openai(self, *, strict: bool = True) -> openai.OpenAI:
        return openai.OpenAI(
            base_url="http://gateway/s/abc/v1",
            api_key="k",
            max_retries=0,
            http_client=httpx2.Client(transport=self),
            _strict_response_validation=strict,
        )

    def async_openai(self) -> openai.AsyncOpenAI:
        client = httpx2.AsyncClient(transport=self)
        return openai.AsyncOpenAI(base_url="http://gateway/s/abc/v1", api_key="k", http_client=client)

    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            base_url="http://gateway/s/abc",
            api_key="k",
            max_retries=0,
            http_client=httpx2.Client(transport=self),
            _strict_response_validation=True,
        )

    def async_anthropic(self) -> anthropic.AsyncAnthropic:
        client = httpx2.AsyncClient(transport=self)
        return anthropic.AsyncAnthropic(base_url="http://gateway/s/abc", api_key="k", http_client=client)


def plain(value: Any) -> Any:
    """What a client would put into its next request."""
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value
