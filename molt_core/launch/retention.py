"""Which checkpoints are kept: the newest, the young, and the best of those that were evaluated. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen


@frozen(kw_only=True)
class Saved:
    """A complete checkpoint."""

    step: int
    version: int
    """Policy version of its weights."""
    saved_s: float
    """When it was written, seconds since the epoch."""


def retained(
    checkpoints: Iterable[Saved], *, newest: int, hours: float, now_s: float, scores: Mapping[str, float]
) -> set[int]:
    """Steps of the checkpoints to keep.

    Args:
        newest: how many of the last ones; at least 1.
        hours: younger ones are kept, too.
        scores: of evaluated versions, finite, higher is better; empty: none is kept for being best.
    """
    by_step = sorted(checkpoints, key=lambda saved: saved.step)
    kept = {saved.step for saved in by_step[-newest:]}
    kept |= {saved.step for saved in by_step if saved.saved_s > now_s - hours * 3600}
    step = best(by_step, scores)
    return kept if step is None else kept | {step}


def best(checkpoints: Iterable[Saved], scores: Mapping[str, float]) -> int | None:
    """Step of the checkpoint whose version was evaluated best; of equals the newest, None without any."""
    ranked = [
        (scores[str(saved.version)], saved.step) for saved in checkpoints if str(saved.version) in scores
    ]
    return max(ranked)[1] if ranked else None
