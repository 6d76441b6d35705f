"""Slots `filters` and `shapers`: which groups train, and what a reward is worth. No arrays, no torch.

API 1. Filters are called as `factory(options)`, shapers as `factory(options, limits)`.

    class Solvable:
        def __init__(self, options: NoOptions) -> None: ...
        def keeps(self, rewards: Sequence[float | None]) -> bool:
            return any(reward == 1.0 for reward in rewards)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen


class Filter(Protocol):
    """Decides when a group is complete, before its rewards are shaped."""

    def keeps(self, rewards: Sequence[float | None]) -> bool:
        """Whether a group trains; its place is filled by the next prompt if not.

        Args:
            rewards: raw reward of each rollout, however many segments it has; None where it failed or
                abstained.
        """
        ...


@frozen(kw_only=True)
class Limits:
    """Of the run."""

    max_tokens: int
    """Most sampled tokens of one reply."""
    max_length: int
    """Most tokens of prompt and reply together."""


@frozen(kw_only=True)
class Graded:
    """One rollout that trains."""

    reward: float
    truncated: bool
    reply_tokens: int
    """Sampled tokens of the segment that has most."""
    context_tokens: int
    """Tokens of the longest segment."""


class Shaper(Protocol):
    def shape(self, graded: Sequence[Graded]) -> Sequence[float]:
        """The reward that estimators see, one for each rollout; finite."""
        ...
