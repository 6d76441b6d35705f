"""Environment `verify`: one question of a data set, one reply, one grade.

In go rows with a prompt and an answer under any of their usual names; out come conversations
and rewards. Makes no tasks of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from molt_core.api import columns
from molt_core.api.environment import Graded, Message, Reply, Row
from molt_plugin_envs.numbers import last_number
from molt_plugin_envs.reward_file import RewardFunction
from molt_plugin_envs.reward_option import split
from molt_plugin_envs.spec import VerifyOptions

Grader = Callable[[str, Row], Any]


def exact(text: str, row: Row) -> float:
    """1 when the reply is the answer, apart from white space around it; else 0."""
    return float(text.strip() == str(columns.answer(row)).strip())


def number(text: str, row: Row) -> float:
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


class Verify:
    def __init__(self, options: VerifyOptions) -> None:
        self._system = options.system
        function = split(options.reward)
        self._grade: Grader = RewardFunction(*function) if function else GRADERS[options.reward]

    def tasks(self, split: str, seed: int) -> Iterator[Row]:
        """None: they come from --data and --eval-data."""
        return iter(())

    def prompt(self, row: Row) -> list[Message]:
        messages = columns.messages(row)
        if self._system and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self._system})
        return messages

    def score(self, row: Row, reply: Reply) -> Graded:
        graded: Graded = self._grade(reply.text, row)
        return graded
