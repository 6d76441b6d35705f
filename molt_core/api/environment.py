"""Slot `envs`: tasks, and how replies to them are graded.

API 1. The factory is called as `factory(options)`. An `Environment` asks once and grades the
reply; it is made once in every worker process, and also grades what agents do.

    class Parity:
        def __init__(self, options: NoOptions) -> None: ...
        def tasks(self, split: str, seed: int) -> Iterator[Row]: ...
        def prompt(self, row: Row) -> list[Message]:
            return [{"role": "user", "content": f"Is {row['n']} even?"}]
        def score(self, row: Row, reply: Reply) -> float:
            return float(("yes" in reply.text.lower()) == (row["n"] % 2 == 0))

A `TurnEnvironment` (spec: `multi_turn=True`) goes on for several turns, as in Gymnasium; it is
made anew for every rollout.

    class Guess:
        def __init__(self, options: NoOptions) -> None: ...
        def reset(self, row: Row) -> list[Message]:
            self.secret = row["secret"]
            return [{"role": "user", "content": "Guess a number."}]
        def step(self, reply: Reply) -> Step:
            if reply.text.strip() == str(self.secret):
                return Step(reward=1.0, done=True)
            return Step(messages=[{"role": "user", "content": "Wrong. Again."}])
        def close(self) -> None: ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from pathlib import Path
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
    reasoning: str = ""
    """Thinking before the text, where the model's format tells the two apart."""
    tool_calls: tuple[Any, ...] = ()
    """`molt_core.api.agent.ToolCall` of each call, in order."""
    workspace: Path | None = None
    """Folder that the agent worked in, where there was one."""
    judge: Any = None
    """`session.judge`, for async graders that ask a model: `await reply.judge("Is … right?")`."""


@frozen(kw_only=True)
class Score:
    """A reward with numbers worth a metric. `reward=None` abstains."""

    reward: float | None
    info: Mapping[str, float] = field(factory=dict)


Graded = float | int | bool | None | Score


@frozen(kw_only=True)
class Step:
    """What a reply led to."""

    messages: Sequence[Mapping[str, Any]] = ()
    """What the policy reads next, in OpenAI's chat form: tool results, user messages, images."""
    reward: float | None = 0.0
    """Of this turn; a rollout's reward is their sum. None abstains from grading the whole rollout."""
    done: bool = False
    """The task is over."""
    truncated: bool = False
    """A limit of the environment ended it."""
    info: Mapping[str, float] = field(factory=dict)
    """Numbers worth a metric; of several turns the last one counts."""


@frozen(kw_only=True)
class Opening:
    """How an episode begins, where there is more to say than messages."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    """Definitions in OpenAI's form, for the chat template."""


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


class TurnEnvironment(Protocol):
    """Methods may be async. Blocking code is fine: it runs off the event loop, each call with a deadline."""

    def tasks(self, split: Literal["train", "eval"], seed: int) -> Iterator[Row]:
        """As of an Environment; only needed where the spec says `makes_tasks`."""
        ...

    def reset(self, row: Row) -> Opening | Sequence[Mapping[str, Any]]: ...

    def step(self, reply: Reply) -> Step: ...

    def close(self) -> None:
        """Always called once, also after an error, and when reset did not succeed."""
        ...
