"""What observers are told. One frozen event per hook; fields are only ever added."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import Factory, field, frozen

from molt_core.experience.rollout import RolloutSummary


@frozen(kw_only=True)
class RunStarted:
    run_folder: Path
    plan: Mapping[str, Any]
    """The frozen plan, as in plan.json."""
    step: int = 0
    """Steps that were done before, of a run that is resumed. What was told of later ones is told again."""


@frozen(kw_only=True)
class RolloutFinished:
    step: int
    """Step that the trainer is at."""
    summary: RolloutSummary


@frozen(kw_only=True)
class StepFinished:
    step: int
    """From 1."""
    metrics: Mapping[str, float]
    """Read-only; names as in docs/metrics.md."""


@frozen(kw_only=True)
class WeightsPublished:
    version: int
    seconds: float
    num_bytes: int


@frozen(kw_only=True)
class CheckpointSaved:
    step: int
    path: Path
    seconds: float


@frozen(kw_only=True)
class EvalFinished:
    step: int
    """After which it began; 0 before the first."""
    version: int
    """Policy version that was evaluated: the oldest that sampled a token of it."""
    metrics: Mapping[str, float]
    summaries: tuple[RolloutSummary, ...]
    """The evaluated rollouts, in order of prompts, without their payloads."""
    newest_version: int = field(default=Factory(lambda self: self.version, takes_self=True))
    """Newer than `version` if the engines got new weights while it ran, beside training."""


@frozen(kw_only=True)
class ActorDied:
    """An engine or worker is lost; what it was at is done again elsewhere."""

    name: str
    cause: str
    restart_in_s: float | None
    """Seconds until it is started again; None: not any more."""


@frozen(kw_only=True)
class ActorJoined:
    """An engine or worker has come while the run goes on: one that had died, or had found no place before."""

    name: str
    seconds: float
    """That its start took."""


@frozen(kw_only=True)
class RunFinished:
    outcome: str
    """`done`, `stopped_early`, `interrupted` or `failed`."""
    step: int
    ledger: Mapping[str, Any]
    """Final counts, as in the last line of ledger.jsonl."""
    checkpoint: Path | None = None
    """The last one saved."""
    error: str = ""


Event = (
    RunStarted
    | RolloutFinished
    | StepFinished
    | WeightsPublished
    | CheckpointSaved
    | EvalFinished
    | ActorDied
    | ActorJoined
    | RunFinished
)
