"""The wish to stop, from Ctrl-C or a scheduler's SIGTERM, as something the loop can wait for."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """Raised inside the loop where it gives up waiting because the run was asked to stop."""


class StopSignal:
    """Set once, by the first signal. The loop finishes the step it is in, saves and ends."""

    def __init__(self) -> None:
        self.reason = ""
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def request(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """Await `work`; when a stop is requested first, cancel it and raise `Stopped`."""
        running = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return running.result()
            raise Stopped(self.reason)
        finally:
            for task in (running, stopped):
                task.cancel()
            await asyncio.gather(running, stopped, return_exceptions=True)

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for an orderly stop; a second one of them ends the process at once."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)

        def handle(number: signal.Signals) -> None:
            self.request(number.name)
            for each in signals:
                loop.remove_signal_handler(each)

        for number in signals:
            loop.add_signal_handler(number, handle, number)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
