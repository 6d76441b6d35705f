"""Runs a piece of Python that a policy wrote, and says what it printed.

Each call is a process of its own: isolated mode, its own process group and empty folder, no
variables of ours, limits on time, CPU, memory, size of files and output. On Linux it also gives up
network, further processes and threads, signals, and all files but its folder (to write) and
Python's own with system libraries (to read). The README says what that does not protect from.
Nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import frozen

from molt_plugin_envs.spec import PythonToolOptions

CHILD: Final = str(Path(__file__).with_name("sandbox_child.py"))
READABLE: Final = (sys.base_prefix, "/usr", "/lib", "/lib64")
KILLED: Final = {
    signal.SIGXCPU: "used more CPU than {cpu_s} s",
    signal.SIGXFSZ: "wrote more than {file_mb} MB",
}


@frozen
class Output:
    text: str
    """What was printed, stdout and stderr as they came, and at the end what stopped it."""
    failed: bool
    """It raised, or a limit ended it."""


async def run_python(code: str, options: PythonToolOptions) -> Output:
    """Run `code` within the limits of `options`. Cancelling ends the process too.

    Raises:
        OSError: the process could not be started.
    """
    folder = tempfile.mkdtemp(prefix="molt-python-")
    try:
        return await _run(code, options, folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _run(code: str, options: PythonToolOptions, folder: str) -> Output:
    packages = sysconfig.get_path("purelib")
    config = {
        "packages": packages,
        "limits": {"cpu_s": options.cpu_s, "memory_mb": options.memory_mb, "file_mb": options.file_mb},
        "confined": not options.unconfined,
        "readable": [*READABLE, packages],
    }
    environment = {
        "PATH": os.defpath,
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
    }
    transport, process = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Process(4 * options.max_output), sys.executable, "-I", "-S", "-B", "-X", "utf8", CHILD,
        json.dumps(config), cwd=folder, env=environment, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    stopped = ""
    try:
        stdin = transport.get_pipe_transport(0)
        stdin.write(code.encode(errors="replace"))  # type: ignore[union-attr]
        stdin.close()  # type: ignore[union-attr]
        async with asyncio.timeout(options.timeout_s):
            await process.over.wait()
    except TimeoutError:
        stopped = f"took longer than {options.timeout_s:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
        await process.exited.wait()
        transport.close()
    text = process.output.decode(errors="replace")
    returncode = transport.get_returncode() or 0
    if len(text) > options.max_output:
        text, stopped = text[: options.max_output], f"printed more than {options.max_output} characters"
    elif not stopped and returncode < 0:
        name = KILLED.get(signal.Signals(-returncode), f"ended by {signal.Signals(-returncode).name}")
        stopped = name.format(cpu_s=options.cpu_s, file_mb=options.file_mb)
    note = f"[stopped: {stopped}]" if stopped else ""
    return Output("\n".join(filter(None, (text.rstrip(), note))), bool(stopped or returncode))


class _Process(asyncio.SubprocessProtocol):
    """Collects output up to a limit, and tells when the process is over."""

    def __init__(self, max_bytes: int) -> None:
        self.output = bytearray()
        self.over = asyncio.Event()
        """It exited, or printed more than is wanted."""
        self.exited = asyncio.Event()
        self._max_bytes = max_bytes

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output += data[: self._max_bytes + 1 - len(self.output)]
        if len(self.output) > self._max_bytes:
            self.over.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.over.set()
