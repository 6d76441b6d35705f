"""Environment `verify`: one question of a data set, one reply, one grade.

In go rows with a prompt and an answer under any of their usual names; out come conversations
and rewards. Makes no tasks of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

from molt_core.api import columns
from molt_core.api.environment import Graded, Message, Reply, Row
from molt_plugin_envs.rewards import Rewards
from molt_plugin_envs.spec import VerifyOptions


class Verify:
    def __init__(self, options: VerifyOptions) -> None:
        self._system = options.system
        self._rewards = Rewards(options)

    def tasks(self, split: str, seed: int) -> Iterator[Row]:
        """None: they come from --data and --eval-data."""
        return iter(())

    def prompt(self, row: Row) -> list[Message]:
        return with_system(columns.messages(row), self._system)

    def score(self, row: Row, reply: Reply) -> Graded | Awaitable[Graded]:
        return self._rewards.grade(reply.text, row, reply)


def with_system(messages: list[Message], system: str) -> list[Message]:
    """The conversation with a system message, unless it has one or `system` is empty."""
    if not system or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]
