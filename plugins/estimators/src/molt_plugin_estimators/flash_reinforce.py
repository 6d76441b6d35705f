"""FlashREINFORCE: reward minus the mean of the whole batch, not whitened; meant for one rollout per prompt.

    A_i = R_i − mean of all rewards of the step

Source: the recipe of NVIDIA's Molt (arXiv 2607.21653). Its code takes the mean over segments; here a rollout
counts once, however many segments it has.
Shapes: rewards [R], advantages [R], float64.
"""

from __future__ import annotations

import numpy as np

from molt_core.api.estimator import FloatVector, RewardBatch
from molt_core.api.options import NoOptions
from molt_plugin_estimators.centring import centred


class FlashReinforce:
    def __init__(self, options: NoOptions) -> None: ...

    def advantages(self, batch: RewardBatch) -> FloatVector:
        """[R] float64; exactly 0 when all rewards are equal."""
        whole = RewardBatch(
            rewards=batch.rewards, groups=np.zeros_like(batch.groups), num_tokens=batch.num_tokens
        )
        return centred(whole)
