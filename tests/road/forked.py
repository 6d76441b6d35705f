"""`molt` in a process that is forked from one which has imported torch and transformers: seconds less for each start.

For runs that are one process: executor `local`, one rank, an embedded engine. It stands where `subprocess.Popen` would,
with a session of its own, so that it can be killed like a command.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path

from molt_core.cli.main import main

_FORKSERVER = multiprocessing.get_context("forkserver")
atexit.register(forkserver._forkserver._stop)  # and wait for it; it would end a little after the tests
_FORKSERVER.set_forkserver_preload(
    [
        "molt_core.launch.train", "molt_plugin_fsdp.trainer", "molt_plugin_transformers.engine",
        "molt_plugin_tracking.tensorboard",
    ]
)  # fmt: skip


class Forked:
    def __init__(self, words: Sequence[str], folder: Path, output: Path) -> None:
        """Start it in `folder`; what it prints is written to `output`."""
        self._process = _FORKSERVER.Process(target=_run, args=(list(words), folder, output))
        self._process.start()
        # until it leads its group nobody can kill that
        while self._process.is_alive() and os.getpgid(self.pid) != self.pid:
            time.sleep(0.001)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> None:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("molt", timeout or 0)


def _run(words: list[str], folder: Path, output: Path) -> None:
    os.setsid()
    os.chdir(folder)
    with output.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.exit(main(words))
