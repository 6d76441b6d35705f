"""What a trainer rank receives for one optimizer step."""

from __future__ import annotations

from attrs import frozen

from molt_core.experience.segment import FloatArray, Segment


@frozen(kw_only=True)
class Window:
    """Counts over the whole optimizer window: all ranks, all micro-batches.

    Loss denominators come from here, so that the gradient depends neither on the number of
    ranks nor on packing.
    """

    num_tokens: int
    """Sampled tokens."""
    num_rollouts: int
    num_groups: int


@frozen(kw_only=True)
class TrainItem:
    """One segment to train on."""

    segment: Segment
    advantage: float
    """Of the rollout; applies to each of its sampled tokens."""
    rollout_index: int
    """Number of the rollout within the window; segments of one rollout share it."""
    group_index: int
    rollout_tokens: int
    """Sampled tokens of the rollout, over all its segments."""
    group_tokens: int
    """Sampled tokens of all trained rollouts of the prompt."""
    segment_index: int
    """Number of the segment within its rollout."""
    token_rewards: FloatArray
    """[n] float32, one for each sampled token of the segment. Over the rollout they sum to `advantage`: turn
    rewards where they were earned, the rest at the rollout's last token."""


@frozen(kw_only=True)
class TrainBatch:
    """One rank's share of the window. May be empty on some ranks, never on all."""

    items: tuple[TrainItem, ...]
    window: Window
