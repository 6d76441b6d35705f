"""Folders that are made once: built beside their place, recorded in a manifest, renamed into it.

In: a folder, a recipe (a string that changes when the content should) and a function that fills
an empty folder. Out: the folder, complete. A reader never sees a half-made folder: the rename is
the last step, and a folder whose manifest does not hold is made again. Two processes that want
the same folder build it once, under a file lock that the system drops with its holder.

Every call compares all sizes and hashes the small files (config, tokenizer), which costs
milliseconds; hashing hundreds of megabytes of weights is left to `damage(..., full=True)`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from molt_core.errors import PreflightError

MANIFEST = "manifest.json"
SMALL_BYTES = 8 * 2**20
"""Files up to this size are hashed on every call."""
WAIT_S = 600.0
"""Longest wait for another process that builds the same folder."""


def make_once(folder: Path, recipe: str, build: Callable[[Path], None], *, wait_s: float = WAIT_S) -> Path:
    """Return `folder`, built by `build` unless it is there and whole.

    Raises:
        PreflightError: the cache can't be used, or another process holds the lock for longer than
            `wait_s` seconds.
    """
    try:
        if damage(folder, recipe) is None:
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(folder.name + ".lock").open("a")
    except OSError as problem:
        raise PreflightError(
            f"the model cache {folder.parent} can't be used: {problem}. "
            "Name a folder that can be written in the environment variable MOLT_CACHE."
        ) from problem
    with lock:
        _wait_for(lock, folder, wait_s)
        if damage(folder, recipe) is not None:
            _build(folder, recipe, build)
    return folder


def damage(folder: Path, recipe: str, *, full: bool = False) -> str | None:
    """What is wrong with a made folder in a few words, or None. `full` hashes the large files too."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        if manifest["recipe"] != recipe:
            return f"made by the recipe {manifest['recipe']!r}"
        for name, entry in manifest["files"].items():
            num_bytes = (folder / name).stat().st_size
            if num_bytes != entry["bytes"]:
                return f"{name} has {num_bytes} bytes instead of {entry['bytes']}"
            if (full or num_bytes <= SMALL_BYTES) and _sha256(folder / name) != entry["sha256"]:
                return f"{name} has another checksum"
    except FileNotFoundError as missing:
        return f"{missing.filename} is missing"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} can't be read"
    return None


def _build(folder: Path, recipe: str, build: Callable[[Path], None]) -> None:
    for left in folder.parent.glob(f".{folder.name}-*"):  # of a process that was killed; we hold the lock
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        made = Path(work, "new")
        made.mkdir()
        build(made)
        files = {
            path.relative_to(made).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
            for path in sorted(made.rglob("*"))
            if path.is_file()
        }
        (made / MANIFEST).write_text(json.dumps({"recipe": recipe, "files": files}, indent=1) + "\n", "utf-8")
        if folder.exists():  # a directory can't be renamed over one that has content
            folder.rename(Path(work, "old"))
        made.rename(folder)


def _wait_for(lock: TextIO, folder: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise PreflightError(
                    f"another process has been making {folder} for more than {wait_s:g} s. "
                    "Wait for it or end it, and start again."
                ) from None
            time.sleep(0.1)


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
