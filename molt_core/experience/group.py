"""The rollouts of one prompt."""

from __future__ import annotations

from attrs import frozen

from molt_core.experience.rollout import RolloutSummary


@frozen(kw_only=True)
class Group:
    """Siblings: they answer one prompt and are compared with each other."""

    group_id: str
    task_id: str
    index: int
    """Order of dispatch, from 0."""
    dispatched_at_version: int
    """Published policy version when the first rollout started; no token of the group is older."""
    rollouts: tuple[RolloutSummary, ...]
    started_s: float = 0.0
    """When the first rollout was dispatched, on the loop's clock."""
    finished_s: float = 0.0
    """When the last rollout ended, on the loop's clock."""

    @property
    def trainable(self) -> tuple[RolloutSummary, ...]:
        return tuple(rollout for rollout in self.rollouts if rollout.trains)

    @property
    def oldest_version(self) -> int:
        return min(
            (rollout.oldest_version for rollout in self.trainable if rollout.oldest_version is not None),
            default=self.dispatched_at_version,
        )
