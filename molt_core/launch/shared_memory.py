"""Where files that only processes of one machine share are put."""

from __future__ import annotations

from pathlib import Path

_LINUX = Path("/dev/shm")  # noqa: S108 - callers make private files or folders in it


def shared_memory() -> Path | None:
    """A folder in memory, or None (the system's temporary folder) where there is none."""
    return _LINUX if _LINUX.is_dir() else None
