"""Folders for files that only processes of one machine share, in memory where there is a place for that."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_LINUX: Final = Path("/dev/shm")  # noqa: S108 - private folders are made in it
_PREFIX: Final = "molt-shared-"


class SharedFolder:
    """A folder of this process. What killed processes have left is removed when the next one is made.

    The operating system's lock on a folder says that its process lives, in other containers, too.
    """

    def __init__(self, root: Path | None = None) -> None:
        root = root or (_LINUX if _LINUX.is_dir() else Path(tempfile.gettempdir()))
        _remove_left(root)
        # under another name until it is locked
        new = Path(tempfile.mkdtemp(prefix="molt-new-", dir=root))
        self._lock = os.open(new, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = new.rename(new.with_name(_PREFIX + new.name.removeprefix("molt-new-")))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_left(root: Path) -> None:
    for path in root.glob(f"{_PREFIX}*"):
        # in use, of another user, or just removed by someone else
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(descriptor)
