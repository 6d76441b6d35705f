"""Checkpoints as folders that appear whole or not at all.

Everything is written into a hidden folder beside the final one, listed in a manifest with
sizes and SHA-256 checksums, and renamed into place; `latest` is a link that is replaced
after that, and older checkpoints are pruned last. What is killed half-way keeps its hidden
name and is never picked up.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "manifest.json"
LOOP_STATE: Final = "loop.json"
TRAINER_STATE: Final = "trainer_state"


def begin(folder: Path, step: int) -> Path:
    """An empty hidden folder to write the checkpoint of `step` into."""
    unfinished = folder / f".step_{step}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    return unfinished


def commit(unfinished: Path, step: int, state: Mapping[str, Any], *, keep: int) -> Path:
    """Write state and manifest, make it durable, rename it into place, prune older ones."""
    (unfinished / LOOP_STATE).write_text(json.dumps(state, indent=1, sort_keys=True), encoding="utf-8")
    manifest = {
        str(path.relative_to(unfinished)): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(unfinished.rglob("*"))
        if path.is_file()
    }
    (unfinished / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    _sync(unfinished)
    final = unfinished.parent / f"step_{step}"
    shutil.rmtree(final, ignore_errors=True)
    unfinished.rename(final)
    _point_latest(final)
    _prune(final.parent, keep)
    return final


def _point_latest(final: Path) -> None:
    run_folder = final.parent.parent
    new = run_folder / ".latest.new"
    new.unlink(missing_ok=True)
    new.symlink_to(final.relative_to(run_folder))
    new.replace(run_folder / "latest")


def _prune(folder: Path, keep: int) -> None:
    complete = sorted(folder.glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))
    for old in complete[:-keep]:
        shutil.rmtree(old)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Flush files and folder to disk, so that the rename can't survive a power cut that its content does not."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
