"""Virtual time for asyncio: sleeping costs nothing, and hours pass in milliseconds.

The loop's clock jumps to the next timer as soon as nothing else can run. When nothing is
scheduled at all, every task waits for another: the loop says so instead of hanging. Not for
code that uses threads, whose time is real.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """All tasks wait and no timer is set: in real time this would hang for ever."""


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing is scheduled and every task waits")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` like `asyncio.run`, on virtual time.

    Raises:
        Deadlock: nothing can ever happen any more.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
