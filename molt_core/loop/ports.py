"""What the loop needs from the outside, as protocols.

`molt_core.launch` fulfils them with processes, `molt_core.testing` with fakes on virtual
time. The loop passes light things only: a rollout's tokens stay behind its payload.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from molt_core.api.trainer import StepResult
from molt_core.data.tasks import Task
from molt_core.experience import RolloutSummary, Window


@frozen(kw_only=True)
class RolloutRequest:
    """One rollout to run."""

    rollout_id: str
    group_id: str
    task: Task
    temperature: float
    max_tokens: int
    seed: int
    timeout_s: float
    top_logprobs: int = 0
    """Likeliest tokens to record beside each sampled one."""


@frozen(kw_only=True)
class ItemReference:
    """One segment to train on, by reference to the rollout that holds it."""

    payload: Any
    segment: int
    num_tokens: int
    """Of the segment, for balancing."""
    advantage: float
    rollout_id: str
    rollout_index: int
    group_index: int
    rollout_tokens: int
    """Sampled tokens of the rollout."""
    group_tokens: int
    """Sampled tokens of the group's trainable rollouts."""


@frozen(kw_only=True)
class RankShare:
    """What one trainer rank fetches and trains on in one optimizer step."""

    items: tuple[ItemReference, ...]
    window: Window


@frozen(kw_only=True)
class Published:
    """All engines use the new version."""

    num_bytes: int
    gather_s: float
    """Seconds in which the trainer wrote the weights."""
    load_s: float
    """Seconds from the first engine's pause to the last engine's resume."""


class RolloutsLost(Exception):
    """Finished rollouts whose tokens are gone, with the machine or the worker that kept them."""

    def __init__(self, rollout_ids: Iterable[str]) -> None:
        self.rollout_ids = frozenset(rollout_ids)
        super().__init__(", ".join(sorted(self.rollout_ids)))


class Sampler(Protocol):
    async def sample(self, request: RolloutRequest) -> RolloutSummary:
        """Run one rollout. What goes wrong inside it is its outcome, not an exception.

        Raises:
            RunError: no engine or no worker is left.
        """
        ...


class Policy(Protocol):
    """The model being trained, together with the engines that sample from it."""

    @property
    def num_ranks(self) -> int: ...

    async def step(self, shares: Sequence[RankShare]) -> StepResult:
        """One optimizer step; one share per rank.

        Raises:
            RolloutsLost: before anything has changed.
        """
        ...

    async def publish(self, version: int) -> Published:
        """Bring the trained weights into every engine. Returns when all of them use them."""
        ...

    async def save(self, step: int, state: Mapping[str, Any], payloads: Mapping[str, Any]) -> Awaitable[Path]:
        """Write a checkpoint: weights, optimizer, `state` (JSON) and what is behind `payloads`, by name.

        Returns when the trainer may go on. What is left, making it durable and visible, goes on beside
        training; it gives the checkpoint's folder, and must be awaited before the next one is saved.

        Raises:
            RolloutsLost: nothing is saved.
        """
        ...
