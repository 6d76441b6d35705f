"""Dr. GRPO: reward minus the mean of its group, and nothing else.

    A_i = R_i − mean of the rewards of i's group

GRPO's division by the group's deviation gives most weight to prompts that are nearly always or nearly never
solved; leaving it out removes that bias.

Source: Liu et al., Understanding R1-Zero-Like Training (arXiv 2503.20783), section 3.
Shapes: rewards [R], groups [R], advantages [R], float64.
Left out: the paper's constant length in the denominator of the loss, which belongs to the loss.
"""

from __future__ import annotations

from molt_core.api.estimator import FloatVector, RewardBatch
from molt_core.api.options import NoOptions
from molt_plugin_estimators.centring import centred


class DrGrpo:
    def __init__(self, options: NoOptions) -> None:
        """Has no knobs."""

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64; exactly 0 in groups of equal rewards and in groups of one."""
        return centred(batch)
