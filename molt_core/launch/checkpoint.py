"""Checkpoints as folders that appear whole or not at all.

Everything is written into a hidden folder beside the final one, listed in a manifest with
sizes and SHA-256 checksums, and renamed into place; `latest` is a link that is replaced
after that, and older checkpoints are pruned last. What is killed half-way keeps its hidden
name and is never picked up. Who goes on from a checkpoint checks it against its manifest first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from molt_core.launch.retention import Saved, best, retained

MANIFEST: Final = "manifest.json"
LOOP_STATE: Final = "loop.json"
TRAINER_STATE: Final = "trainer_state"
ROLLOUTS: Final = "rollouts"
DAMAGED: Final = "damaged"
_COMPLETE: Final = re.compile(r"step_(\d+)")


@frozen(kw_only=True)
class Keep:
    """As in `RunOptions`: `keep_checkpoints`, `keep_hours`."""

    newest: int
    hours: float = 0.0


@frozen
class Found:
    """A checkpoint to go on from; None where the run has none."""

    folder: Path | None
    state: Mapping[str, Any]
    """What `commit` was given."""
    damaged: tuple[str, ...] = ()
    """What is wrong with newer ones, which are passed over."""


def unfinished(folder: Path, step: int) -> Path:
    """Hidden folder to write the checkpoint of `step` into."""
    return folder / f".step_{step}.unfinished"


def begin(folder: Path, step: int) -> Path:
    """Make that folder, empty."""
    path = unfinished(folder, step)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def commit(unfinished: Path, step: int, state: Mapping[str, Any], *, keep: Keep) -> Path:
    """Write state and manifest, make it durable, rename it into place, prune older ones.

    Args:
        state: JSON; its `version` is that of the weights, its `scores` say which version is best.
    """
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
    _sync_one(final.parent)
    _link(final, "latest")
    _prune(final.parent, keep, state.get("scores", {}))
    return final


def find(folder: Path, *, before: int | None = None) -> Found:
    """The newest checkpoint, of a step `before` where given, in which all is as its manifest says. Changes nothing."""
    damaged: list[str] = []
    for path in sorted(_complete(folder), key=_step, reverse=True):
        if before is not None and _step(path) >= before:
            continue
        wrong = _damage(path)
        if not wrong:
            state = json.loads((path / LOOP_STATE).read_text(encoding="utf-8"))
            return Found(path, state, tuple(damaged))
        damaged.append(f"{path.name}: {wrong}")
    return Found(None, {}, tuple(damaged))


def set_aside(folder: Path, chosen: Path) -> None:
    """Rename the damaged checkpoints after `chosen`, so that none of them counts as the newest again."""
    for path in _complete(folder):
        if _step(path) > _step(chosen):
            aside = path.with_name(f"{path.name}.{DAMAGED}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
    _link(chosen, "latest")


def _damage(path: Path) -> str:
    """What is wrong with a checkpoint; empty if nothing is."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        for name, entry in manifest.items():
            file = path / name
            if not file.is_file():
                return f"{name} is missing"
            if file.stat().st_size != entry["bytes"]:
                return f"{name} has {file.stat().st_size} bytes, the manifest says {entry['bytes']}"
            if _sha256(file) != entry["sha256"]:
                return f"{name} is not what was written: its checksum differs from the manifest's"
        return "" if LOOP_STATE in manifest else f"the manifest does not list {LOOP_STATE}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as failure:
        return f"its manifest can't be read: {failure!r}"


def _complete(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step_*") if _COMPLETE.fullmatch(path.name)]


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step_"))


def _link(final: Path, name: str) -> None:
    run_folder = final.parent.parent
    new = run_folder / f".{name}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(final.relative_to(run_folder))
    new.replace(run_folder / name)


def _prune(folder: Path, keep: Keep, scores: Mapping[str, float]) -> None:
    checkpoints = [_saved(path) for path in _complete(folder)]
    kept = retained(checkpoints, newest=keep.newest, hours=keep.hours, now_s=time.time(), scores=scores)
    if (step := best(checkpoints, scores)) is not None:
        _link(folder / f"step_{step}", "best")
    for saved in checkpoints:
        if saved.step not in kept:
            # hidden first: one that is removed half-way must not look complete
            going = folder / f".step_{saved.step}.removed"
            (folder / f"step_{saved.step}").rename(going)
            shutil.rmtree(going)


def _saved(path: Path) -> Saved:
    state = json.loads((path / LOOP_STATE).read_text(encoding="utf-8"))
    return Saved(
        step=_step(path), version=state.get("version", -1), saved_s=(path / MANIFEST).stat().st_mtime
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Flush files and folder to disk, so that the rename can't survive a power cut that its content does not."""
    for path in (*folder.rglob("*"), folder):
        _sync_one(path)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
