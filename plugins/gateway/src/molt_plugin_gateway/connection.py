"""One request and its response over ASGI, and whether the client is still there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from molt_plugin_gateway.exchange import BadRequest

MAX_BODY_BYTES: Final = 64 * 2**20

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Connection:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._left: asyncio.Task[None] | None = None
        self._read_whole = False
        self.started = False

    async def body(self) -> bytes:
        """
        Raises:
            BadRequest: the body is too large; it was read nevertheless, as clients listen only then.
        """
        parts: list[bytes] = []
        num_bytes = 0
        while not self._read_whole:
            message = await self._receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes <= MAX_BODY_BYTES:
                parts.append(message.get("body", b""))
            self._read_whole = not message.get("more_body", False)
        if num_bytes > MAX_BODY_BYTES:
            raise BadRequest(
                f"The body has {num_bytes} bytes; the limit is {MAX_BODY_BYTES} (64 MiB).",
                code="request_too_large",
            )
        return b"".join(parts)

    async def discard(self) -> None:
        while not self._read_whole:
            self._read_whole = not (await self._receive()).get("more_body", False)

    def watch(self) -> None:
        """From now on notice when the client leaves."""

        async def left() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass

        self._left = asyncio.create_task(left())

    @property
    def gone(self) -> bool:
        return self._left is not None and self._left.done()

    async def until(self, task: asyncio.Future[Any], *, timeout_s: float | None = None) -> bool:
        """Wait for the task, or for the client to leave; False when the time is over before."""
        assert self._left is not None
        done, _ = await asyncio.wait(
            {task, self._left}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        return bool(done)

    async def begin_stream(self, data: bytes) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await self._start(200, headers)
        await self.write(data)

    async def write(self, data: bytes) -> None:
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def write_json(self, status: int, content: Mapping[str, Any]) -> None:
        body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        await self._start(
            status, [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        )
        await self.write(body)

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def reply(self, status: int, content: Mapping[str, Any]) -> None:
        await self.write_json(status, content)
        await self.end()

    async def close(self) -> None:
        if self._left is not None:
            self._left.cancel()
            await asyncio.wait({self._left})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
