"""One process at a time works in a run folder.

The lock is the operating system's, so it ends with the process however that ends; `.lock` only
says who held it last. Processes that a killed one has left behind don't hold it.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import IO

from molt_core.errors import PreflightError


def lock(folder: Path) -> IO[str]:
    """Lock a run folder for as long as the file that is returned stays open.

    Raises:
        PreflightError: another process works in it, or it can't be written.
    """
    try:
        file = (folder / ".lock").open("a+", encoding="utf-8")
    except OSError as failure:
        raise PreflightError(f"run folder {str(folder)!r} can't be written: {failure}") from failure
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
    except BlockingIOError as failure:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        message = f"{owner} works in run folder {str(folder)!r}; wait for it, or stop it"
        raise PreflightError(message) from failure
    except OSError as failure:
        file.close()
        raise PreflightError(f"run folder {str(folder)!r} can't be written: {failure}") from failure
    return file
