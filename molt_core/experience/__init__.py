"""Token-first experience: what was sampled, by which policy, and what it was worth.

Imports nothing of ours. All arrays of a segment share one token axis T, and a value belongs
to the token at its own index; the shift to next-token prediction happens in the trainer.
"""

from molt_core.experience.batch import TrainBatch, TrainItem, Window
from molt_core.experience.group import Group
from molt_core.experience.rollout import LeftOut, Outcome, Rollout, RolloutSummary, TurnReward
from molt_core.experience.segment import Segment

__all__ = [
    "Group", "LeftOut", "Outcome", "Rollout", "RolloutSummary", "Segment", "TrainBatch", "TrainItem", "TurnReward",
    "Window",
]  # fmt: skip
