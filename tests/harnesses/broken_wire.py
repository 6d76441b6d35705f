"""A TCP proxy between a harness and the gateway: counts requests, and can break one answer off in mid-stream."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit


class BrokenWire:
    """Between `async with` and its end it listens on a port of its own.

    Args:
        origin: scheme, host and port of the gateway.
        break_first: the connection of the first request that holds this is aborted; empty: none.
        after_bytes: bytes of its answer's body that still come through.
    """

    def __init__(self, origin: str, *, break_first: bytes = b"", after_bytes: int = 50) -> None:
        self._gateway = urlsplit(origin)
        self._break_first = break_first
        self._after_bytes = after_bytes
        self._links: set[asyncio.Task[None]] = set()
        self._ways: set[asyncio.Task[None]] = set()
        self.num_requests = 0
        """With a body; probes don't count."""
        self.origin = ""

    async def __aenter__(self) -> BrokenWire:
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        self.origin = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        if self._links:
            await asyncio.wait(self._links)

    def cut(self) -> None:
        """Abort all connections."""
        for way in self._ways:
            way.cancel()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        task.add_done_callback(self._links.discard)
        gateway_reader, gateway_writer = await asyncio.open_connection(
            self._gateway.hostname, self._gateway.port
        )
        breaks = asyncio.Event()
        ways = {
            asyncio.create_task(self._ask(reader, gateway_writer, breaks)),
            asyncio.create_task(self._answer(gateway_reader, writer, breaks)),
        }
        self._ways |= ways
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        self._ways -= ways
        for end in (writer, gateway_writer):
            end.transport.abort()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, breaks: asyncio.Event
    ) -> None:
        request = b""
        with suppress(OSError):
            while data := await reader.read(65536):
                if data.startswith(b"POST "):
                    self.num_requests += 1
                    request = b""
                request += data
                if self._break_first and self._break_first in request:
                    self._break_first = b""
                    breaks.set()
                writer.write(data)
                await writer.drain()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, breaks: asyncio.Event
    ) -> None:
        seen = b""
        with suppress(OSError):
            while data := await reader.read(65536):
                if breaks.is_set():
                    shown = len(seen)
                    seen += data
                    end = seen.find(b"\r\n\r\n") + 4 + self._after_bytes
                    data = seen[shown : end if end > 3 + self._after_bytes else None]
                writer.write(data)
                await writer.drain()
                if breaks.is_set() and b"\r\n\r\n" in seen and len(seen) >= end:
                    return
