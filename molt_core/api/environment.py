"""Slot `envs`: tasks and how replies to them are graded.

API 1. The factory is called as `factory(options)` in every worker process.

    class Parity:
        def __init__(self, options: NoOptions) -> None: ...
        def tasks(self, split: str, seed: int) -> Iterator[Row]: ...
        def prompt(self, row: Row) -> list[Message]:
            return [{"role": "user", "content": f"Is {row['n']} even?"}]
        def score(self, row: Row, reply: Reply) -> float:
            return float(("yes" in reply.text.lower()) == (row["n"] % 2 == 0))
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypedDict

from attrs import field, frozen

Row = Mapping[str, Any]
"""One task: JSON values by column name."""


class Message(TypedDict):
    role: str
    content: str


@frozen(kw_only=True)
class Reply:
    """What the policy said."""

    text: str
    """Decoded without special tokens."""
    truncated: bool
    """A length limit ended it."""
    num_tokens: int


@frozen(kw_only=True)
class Score:
    """A reward with numbers worth a metric. `reward=None` abstains."""

    reward: float | None
    info: Mapping[str, float] = field(factory=dict)


Graded = float | int | bool | None | Score


class Environment(Protocol):
    def tasks(self, split: Literal["train", "eval"], seed: int) -> Iterator[Row]:
        """Own tasks, for environments whose spec says `makes_tasks`. Endless or finite; equal for equal seeds."""
        ...

    def prompt(self, row: Row) -> list[Message]:
        """The conversation that the policy answers."""
        ...

    def score(self, row: Row, reply: Reply) -> Graded | Awaitable[Graded]:
        """Grade a reply. Blocking code is fine: it runs off the event loop.

        None, NaN and infinite abstain; an exception or another type fails the rollout. Neither
        becomes a reward of 0.
        """
        ...
