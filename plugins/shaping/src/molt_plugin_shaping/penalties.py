"""Penalties on rewards, one for each rollout, then bounds.

    overlong   R − factor · clamp(length − (limit − buffer), 0, buffer) / buffer
    stop       R · coef where truncated; with coef < 0 the reward becomes coef
    clip       clamp(R, low, high)

Source: Yu et al., DAPO (arXiv 2503.14476), equation 13, soft overlong punishment; the stop penalty as in ProRL
(arXiv 2505.24864). The paper's length is the reply's; for agents of several turns, `context` takes the longest
context instead, as there is no single reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from molt_core.api.shaping import Graded, Limits
from molt_plugin_shaping.spec import PenaltyOptions


class Penalties:
    def __init__(self, options: PenaltyOptions, limits: Limits) -> None:
        self._options = options
        self._limits = limits

    def shape(self, graded: Sequence[Graded]) -> list[float]:
        return [self._shaped(one) for one in graded]

    def _shaped(self, one: Graded) -> float:
        options, reward = self._options, one.reward
        if options.overlong_buffer:
            reward -= options.overlong_factor * self._excess(one) / options.overlong_buffer
        if options.stop_coef is not None and one.truncated:
            reward = options.stop_coef if options.stop_coef < 0 else reward * options.stop_coef
        if options.clip:
            reward = min(max(reward, options.clip[0]), options.clip[1])
        return reward

    def _excess(self, one: Graded) -> int:
        of_reply = self._options.overlong_of == "reply"
        limit = self._limits.max_tokens if of_reply else self._limits.max_length
        length = one.reply_tokens if of_reply else one.context_tokens
        return min(max(length - (limit - self._options.overlong_buffer), 0), self._options.overlong_buffer)
