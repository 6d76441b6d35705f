"""Trained batches on disk, for `--record` and `molt replay`: what each rank got, and what came of it.

    rollouts/step_<N>.rank_<r>.safetensors   encoded rollouts as bytes; items and window as JSON in the header
    rollouts/step_<N>.json                   metrics of the step, and a checksum of the weights after it

Ranks write their own part, because tokens don't pass through the controller. A file appears whole
or not at all; a step without its JSON was not finished. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
from attrs import frozen
from safetensors import safe_open
from safetensors.numpy import save

from molt_core.api.findings import error
from molt_core.api.trainer import StepResult
from molt_core.errors import ConfigError, RunError
from molt_core.experience import Window
from molt_core.loop.ports import ItemReference, RankShare
from molt_core.loop.shares import spread

SCHEMA: Final = 3
_OTHER_SCHEMA: Final = "another version of molt-core wrote it"
_OUTCOME: Final = re.compile(r"step_(\d+)\.json")


@frozen(kw_only=True)
class Outcome:
    """What came of one step."""

    step: int
    version: int
    """Of the weights after it; that of the step before if it was skipped."""
    applied: bool
    metrics: Mapping[str, float]
    weights: str
    """SHA-256 of the published weights; empty if the step was skipped."""


class Recorder:
    """The controller's part: which step it is, and what came of it."""

    def __init__(self, folder: Path, step: int) -> None:
        """Args: step: steps done before."""
        self._folder = folder
        self._step = step
        self._result: StepResult | None = None

    def begin(self, num_ranks: int) -> list[Path]:
        """Where the ranks write the batch of the next step."""
        self._step += 1
        self._folder.mkdir(exist_ok=True)
        return [batch_file(self._folder, self._step, rank) for rank in range(num_ranks)]

    def stepped(self, result: StepResult, version: int) -> None:
        self._result = result
        if not result.applied:
            self._write(version, "")

    def published(self, version: int, weights: str) -> None:
        self._write(version, weights)

    def _write(self, version: int, weights: str) -> None:
        result, self._result = self._result, None
        if result is not None:  # else weights of a checkpoint were published
            outcome = Outcome(
                step=self._step, version=version, applied=result.applied, metrics=dict(result.metrics), weights=weights
            )  # fmt: skip
            text = json.dumps({"schema": SCHEMA, **attrs.asdict(outcome)}, indent=1)
            _replace(outcome_file(self._folder, self._step), text.encode())


def batch_file(folder: Path, step: int, rank: int) -> Path:
    return folder / f"step_{step}.rank_{rank}.safetensors"


def outcome_file(folder: Path, step: int) -> Path:
    return folder / f"step_{step}.json"


def recorded_steps(folder: Path) -> list[int]:
    found = (_OUTCOME.fullmatch(path.name) for path in folder.glob("step_*.json"))
    return sorted(int(match[1]) for match in found if match)


def read_outcome(folder: Path, step: int) -> Outcome:
    """Raises ConfigError where the step was not recorded, or by another version."""
    path = outcome_file(folder, step)
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table.pop("schema") != SCHEMA:
            raise ValueError(_OTHER_SCHEMA)
        return Outcome(**table)
    except FileNotFoundError as failure:
        message = f"step {step} was not recorded: there is no {path}"
        raise ConfigError([error("M605", message, fix="molt run ... --record")]) from failure
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise ConfigError([error("M605", f"{path} can't be read: {failure!r}")]) from failure


def num_recorded_ranks(folder: Path, step: int) -> int:
    """Ranks that a step was trained by, from the files that they have left."""
    return next(rank for rank in count() if not batch_file(folder, step, rank).exists())


def read_share(folder: Path, step: int, rank: int, num_ranks: int) -> RankShare:
    """What a rank got in a step, or would have got if there had been `num_ranks`. Raises as `read_batch`."""
    recorded = num_recorded_ranks(folder, step)
    if recorded == num_ranks:
        return read_batch(batch_file(folder, step, rank))
    batches = [read_batch(batch_file(folder, step, each)) for each in range(recorded)]
    items = sorted(
        (item for batch in batches for item in batch.items),
        key=lambda item: (item.rollout_index, item.segment),
    )
    return spread(items, batches[0].window, num_ranks)[rank]


def write_batch(path: Path, share: RankShare, rollouts: Mapping[int, bytes]) -> None:
    """Write a rank's share.

    Args:
        rollouts: encoded, by the items' rollout_index.
    """
    items = [attrs.asdict(attrs.evolve(item, payload=None)) for item in share.items]
    table = {"items": items, "window": attrs.asdict(share.window)}
    header = {"schema": SCHEMA, "sha256": _digest(table, rollouts), **table}
    tensors = {str(index): np.frombuffer(data, np.uint8) for index, data in rollouts.items()}
    _replace(path, save(tensors, metadata={"molt": json.dumps(header)}))


def read_batch(path: Path) -> RankShare:
    """The inverse; payloads are the encoded rollouts themselves.

    Raises:
        ConfigError: there is no such batch, or it is damaged.
    """
    try:
        with safe_open(path, "numpy") as file:
            header: dict[str, Any] = json.loads(file.metadata()["molt"])
            rollouts = {int(name): file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118 - no mapping
        if header["schema"] != SCHEMA:
            raise ValueError(_OTHER_SCHEMA)
        if header["sha256"] != _digest({"items": header["items"], "window": header["window"]}, rollouts):
            raise ValueError("it is not what was written: its checksum differs")
        items = tuple(
            ItemReference(**{**item, "payload": rollouts[item["rollout_index"]]}) for item in header["items"]
        )
        return RankShare(items=items, window=Window(**header["window"]))
    # the library's own error has no public class below Exception; any other says what is wrong with the file
    except Exception as failure:
        raise ConfigError([error("M605", f"batch {path} can't be read: {failure!r}")]) from failure


def weights_digest(path: Path) -> str:
    """SHA-256 of the tensors in a safetensors file, whatever else its header says."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
        digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _digest(table: Mapping[str, Any], rollouts: Mapping[int, bytes]) -> str:
    digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode())
    for index in sorted(rollouts):
        digest.update(hashlib.sha256(rollouts[index]).digest())
    return digest.hexdigest()


def _replace(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as failure:
        raise RunError(f"{path} can't be written: {failure}", reason="disk") from failure
