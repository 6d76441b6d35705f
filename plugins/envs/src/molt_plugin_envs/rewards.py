"""One grade from one or several rewards with weights.

In go the text that is graded, the row and the reply; out comes the weighted sum, with the value
of each reward by its name beside it. One reward alone is handed on as it is, and so is what it
says of itself.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Final

from molt_core.api import columns
from molt_core.api.environment import Graded, Reply, Row, Score
from molt_core.api.python_file import split
from molt_plugin_envs.numbers import last_number
from molt_plugin_envs.reward_file import RewardFunction
from molt_plugin_envs.reward_option import RewardOptions, names

Grader = Callable[[str, Row, Reply], Any]


def exact(text: str, row: Row, _reply: Reply) -> float:
    """1 when the reply is the answer, apart from white space around it; else 0."""
    return float(text.strip() == str(columns.answer(row)).strip())


def number(text: str, row: Row, _reply: Reply) -> float:
    """1 when the last number of the reply equals the last number of the answer; else 0.

    Raises:
        ValueError: the answer holds no number.
    """
    answer = columns.answer(row)
    wanted = last_number(str(answer))
    if wanted is None:
        raise ValueError(f"the answer {answer!r} holds no number; use --env.reward exact or a function")
    return float(last_number(text) == wanted)


GRADERS: Final[dict[str, Grader]] = {"exact": exact, "number": number}


def _grader(reward: str) -> Grader:
    function = split(reward)
    return RewardFunction(*function) if function else GRADERS[reward]


class Rewards:
    def __init__(self, options: RewardOptions) -> None:
        self._weights = dict(
            zip(names(options.reward), options.reward_weights or (1.0,) * len(options.reward), strict=True)
        )
        self._graders = [_grader(reward) for reward in options.reward]

    def grade(self, text: str, row: Row, reply: Reply) -> Graded | Awaitable[Graded]:
        """Awaitable where a reward is async. Raises what a reward raises."""
        graded = [grader(text, row, reply) for grader in self._graders]
        if list(self._weights.values()) == [1.0]:
            alone: Graded = graded[0]
            return alone
        if any(map(isawaitable, graded)):
            return self._later(graded)
        return self._total(graded)

    async def _later(self, graded: Sequence[Any]) -> Score:
        return self._total([await value if isawaitable(value) else value for value in graded])

    def _total(self, graded: Sequence[Any]) -> Score:
        return weighted(dict(zip(self._weights, graded, strict=True)), self._weights)


def weighted(graded: Mapping[str, Any], weights: Mapping[str, float]) -> Score:
    """The weighted sum; abstains when a reward with a weight other than 0 abstains (None, NaN, infinite).

    A reward of weight 0 is only looked at: it becomes a metric and may abstain freely.

    Raises:
        TypeError: a reward is neither number, `Score` nor None.
    """
    info: dict[str, float] = {}
    total: float | None = 0.0
    for name, value in graded.items():
        score = value if isinstance(value, Score) else Score(reward=value)
        info |= score.info
        reward: Any = score.reward
        if reward is not None and (isinstance(reward, str | bytes) or not hasattr(reward, "__float__")):
            kind = type(reward).__name__
            raise TypeError(f"reward {name!r} is {reward!r} of type {kind}, wanted a number, a Score or None")
        if reward is not None and math.isfinite(reward):
            info[name] = float(reward)
            total = None if total is None else total + weights[name] * float(reward)
        elif weights[name]:
            total = None
    return Score(reward=total, info=info)
