"""A program as a subprocess: with a deadline, limited output, and nothing of it left afterwards.

The program leads a process group of its own. At the deadline the group gets SIGTERM, after a
grace SIGKILL. Whatever it started and left behind is killed too, also what moved to another group:
it still carries the variable that marks this program (Linux; elsewhere only the group is found).
The mark names this process too, so that the next one finds what it left when it was killed itself.
Nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from attrs import frozen

MARK: Final = "MOLT_PROCESS_MARK"
PIPES_S: Final = 2.0
"""For the pipes to close once everything is dead."""
ROUNDS: Final = 100
"""Of looking for what is left."""


@frozen(kw_only=True)
class Finished:
    exit_code: int
    """Negative: the number of the signal that ended it."""
    stdout: str
    """The end of it, up to the limit."""
    stderr: str
    timed_out: bool


async def run_process(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str, timeout_s: float, grace_s: float,
    max_output: int,
) -> Finished:  # fmt: skip
    """Run a program to its end or its deadline. Cancelling kills it at once, and waits for that.

    Args:
        stdin: its standard input; empty: none.
        max_output: bytes that are kept of each stream.

    Raises:
        OSError: it could not be started.
    """
    mark = f"{_mark_of(str(os.getpid()))}{secrets.token_hex(16)}"
    transport, process = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Process(max_output), *argv, cwd=cwd, env={**env, MARK: mark}, start_new_session=True,
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    timed_out = False
    try:
        if pipe := transport.get_pipe_transport(0):
            pipe.write(stdin.encode(errors="replace"))  # type: ignore[attr-defined]
            pipe.close()
        async with asyncio.timeout(timeout_s):
            await process.exited.wait()
    except TimeoutError:
        timed_out = True
        _signal(transport.get_pid(), signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.exited.wait()
    finally:
        # shielded: a second cancellation must not leave anything alive
        await asyncio.shield(asyncio.ensure_future(_end(transport, process, mark)))
    return Finished(
        exit_code=transport.get_returncode() or 0,
        stdout=process.kept[1].decode(errors="replace"),
        stderr=process.kept[2].decode(errors="replace"),
        timed_out=timed_out,
    )


async def _end(transport: asyncio.SubprocessTransport, process: _Process, mark: str) -> None:
    _signal(transport.get_pid(), signal.SIGKILL)
    await asyncio.to_thread(_kill_marked, mark)
    await process.exited.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(PIPES_S):
            await process.closed.wait()
    transport.close()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


@cache
def end_orphans() -> None:
    """Kill the programs of processes that were killed themselves, as a worker may be. Once for each process."""
    _kill(lambda mark: not mark.startswith(_mark_of(mark.partition("-")[0]) or "-"))


def _kill_marked(mark: str) -> None:
    _kill(lambda found: found == mark)


def _kill(wanted: Callable[[str], bool]) -> None:
    """Kill whoever has such a mark in its environment; again and again, as it may be starting others."""
    for _ in range(ROUNDS):
        found = False
        for variables in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # of another user, or gone
                for entry in variables.read_bytes().split(b"\0"):
                    name, _, mark = entry.partition(b"=")
                    if name == MARK.encode() and wanted(mark.decode(errors="replace")):
                        os.kill(int(variables.parent.name), signal.SIGKILL)
                        found = True
        if not found:
            return
        time.sleep(0.01)


def _mark_of(pid: str) -> str:
    """`<pid>-<start in clock ticks>-`, how marks of a living process begin; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else f"{pid}-{fields[19]}-"


class _Process(asyncio.SubprocessProtocol):
    """Keeps the end of each stream."""

    def __init__(self, max_output: int) -> None:
        self.kept = {1: bytearray(), 2: bytearray()}
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()
        """It exited and nobody holds its pipes any more."""
        self._max_output = max_output

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.kept[fd] += data
        del self.kept[fd][: -self._max_output]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
