"""The driver's process as Molt sees it: started once, asked many things at a time, ended with its owner.

In go requests, out come results. Nothing here knows verifiers. The process gets the worker's variables, for keys of
judges and folders of caches, but not what tells a Python where its packages are.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections import deque
from pathlib import Path
from typing import Any, Final

from attrs import frozen

DRIVER: Final = Path(__file__).with_name("driver.py")
RUN: Final = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
"""As a script would be run, but without its folder, and with the working one, where modules are looked for."""
NOT_PASSED_ON: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
MOST_BYTES: Final = 1 << 28
"""Of one answer; rows with pictures are large."""
TAIL: Final = 20
"""Lines of stderr that are kept for messages."""


@frozen
class Program:
    """A verifiers environment in a Python."""

    python: str
    id: str
    args: str
    start_timeout_s: float

    @property
    def argv(self) -> tuple[str, ...]:
        return (self.python, "-c", RUN, str(DRIVER), self.id, self.args)


class DriverError(RuntimeError):
    """The driver is gone, did not start, or says that a request failed."""


class Driver:
    """Use `await Driver.start(program)`. All calls on one event loop."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process) -> None:
        self._program = program
        self._process = process
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._errors: deque[str] = deque(maxlen=TAIL)
        self._listening = asyncio.create_task(self._listen_to_errors())
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, program: Program) -> Driver:
        """Raises DriverError: it did not start, or not in time; with its own words."""
        env = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
        process = await asyncio.create_subprocess_exec(
            *program.argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=env, limit=MOST_BYTES, start_new_session=True,
        )  # fmt: skip
        driver = cls(program, process)
        try:
            async with asyncio.timeout(program.start_timeout_s):
                first = await driver._read()
            if "error" in first:
                raise DriverError(f"verifiers environment {program.id!r}: {first['error']}")
        except BaseException as problem:
            await driver.stop()
            if isinstance(problem, TimeoutError):
                late = f"verifiers environment {program.id!r} was not loaded within {program.start_timeout_s:g} s"
                raise DriverError(late) from problem
            raise
        driver._reading = asyncio.create_task(driver._deliver())
        return driver

    @property
    def is_alive(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def ask(self, do: str, **what: Any) -> Any:
        """One request; cancelling it cancels what it does there.

        Raises:
            DriverError: it failed, or the driver died.
        """
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            if not self.is_alive:
                raise DriverError(self._death())
            self._write({"id": number, "do": do, **what})
            return await answer
        except asyncio.CancelledError:
            self._write({"cancel": number})
            raise
        finally:
            del self._waiting[number]

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await asyncio.gather(self._listening, return_exceptions=True)

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(message, default=str) + "\n").encode())

    async def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            await self._process.wait()
            await asyncio.gather(self._listening, return_exceptions=True)
            raise DriverError(self._death())
        message: dict[str, Any] = json.loads(line)
        return message

    async def _deliver(self) -> None:
        """Ends with the process; the process ends with it, that is with the event loop."""
        try:
            while True:
                message = await self._read()
                answer = self._waiting.get(message["id"])
                if answer is None or answer.done():
                    continue  # it was cancelled
                if "error" in message:
                    answer.set_exception(DriverError(message["error"]))
                else:
                    answer.set_result(message["result"])
        except (DriverError, ValueError) as problem:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(problem)
        finally:
            if self._process.returncode is None:
                self._process.kill()

    async def _listen_to_errors(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self._errors.append(line.decode(errors="replace").rstrip())

    def _death(self) -> str:
        ended = f"ended with {self._process.returncode}"
        said = "\n".join(self._errors) or "it said nothing"
        return f"the process of verifiers environment {self._program.id!r} {ended}: {said}"
