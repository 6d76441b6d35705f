"""Filters: groups that say nothing are left out and replaced.

    dynamic   low < mean of R < high            Yu et al., DAPO (arXiv 2503.14476), equation 11
    varied    max R − min R > 1e-9 · max |R|

Raw rewards, one for each rollout. A group with an unscored rollout passes: what is not known can't be judged.
Different from the paper: DAPO counts correct answers; the mean is the same for rewards of 0 and 1, and also
defined for others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from molt_core.api.options import NoOptions
from molt_plugin_shaping.spec import DynamicOptions

EQUAL_WITHIN = 1e-9


class Dynamic:
    def __init__(self, options: DynamicOptions) -> None:
        self._low, self._high = options.low, options.high

    def keeps(self, rewards: Sequence[float | None]) -> bool:
        scored = [reward for reward in rewards if reward is not None]
        if len(scored) < len(rewards):
            return True
        return self._low < math.fsum(scored) / len(scored) < self._high


class Varied:
    def __init__(self, options: NoOptions) -> None: ...

    def keeps(self, rewards: Sequence[float | None]) -> bool:
        scored = [reward for reward in rewards if reward is not None]
        if len(scored) < len(rewards):
            return True
        return max(scored) - min(scored) > EQUAL_WITHIN * max(map(abs, scored))
