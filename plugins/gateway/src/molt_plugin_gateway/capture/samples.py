"""What was sampled, from which prompt, and where it stands in the session's conversations.

Each sample holds only what the one before it doesn't, so that a conversation of n turns takes memory for n turns.
"""

from __future__ import annotations

import numpy as np
from attrs import Factory, define, frozen

from molt_core.api.engine import Generation
from molt_core.experience.segment import IntArray
from molt_plugin_gateway.exchange import Hints, Turn


@define(eq=False)
class Node:
    """A conversation: the turns on the way here from the root of the trie."""

    above: Node | None = None
    below: dict[bytes, Node] = Factory(dict)
    asked: list[Sample] = Factory(list)
    """Samples that continued this conversation."""
    said: list[Sample] = Factory(list)
    """Samples whose reply is its last turn."""

    def child(self, key: bytes) -> Node:
        return self.below.setdefault(key, Node(self))


@frozen(kw_only=True, eq=False)
class Prompt:
    """What a sample was sampled from, as far as the sample that it follows doesn't say."""

    number: int
    """In the order of requests."""
    prepared_at: int
    """Number of samples that were committed before."""
    follows: Sample | None
    """The last earlier sample in the history."""
    extends: bool
    """The tokens start with those of `follows`."""
    added: tuple[Turn, ...]
    """The history after the reply of `follows`."""
    added_ids: IntArray
    """The tokens after those of `follows` where it is extended, else all."""
    num_tokens: int
    rendered_length: int
    """Characters of the text, without a forced opening."""
    rendered_digest: bytes
    hints: Hints
    has_tools: bool
    json_schema: str | None


@define(eq=False, kw_only=True)
class Sample:
    """One generation. Only `delivered` and `followed` change after the commit."""

    sample_id: int
    """Number in the order of commits."""
    prompt: Prompt
    generation: Generation
    reply: Turn
    asked: Node
    said: Node
    delivered: bool = False
    followed: bool = False
    """It is in the history of a later sample."""

    @property
    def parent(self) -> Sample | None:
        """The sample that it extends."""
        return self.prompt.follows if self.prompt.extends else None

    @property
    def num_tokens(self) -> int:
        """Of prompt and reply."""
        return self.prompt.num_tokens + len(self.generation.token_ids)

    def path(self) -> list[Sample]:
        """The samples whose tokens it holds, from the root to itself."""
        path = [self]
        while (parent := path[-1].parent) is not None:
            path.append(parent)
        return path[::-1]

    def token_ids(self) -> IntArray:
        """[num_tokens] int32, prompt and reply."""
        parts = ((sample.prompt.added_ids, sample.generation.token_ids) for sample in self.path())
        return np.concatenate([part for pair in parts for part in pair])

    def conversation(self) -> tuple[Turn, ...]:
        """History and reply, with each reply as it was sampled."""
        runs: list[tuple[Turn, ...]] = []
        sample: Sample | None = self
        while sample is not None:
            runs.append((*sample.prompt.added, sample.reply))
            sample = sample.prompt.follows
        return tuple(turn for run in reversed(runs) for turn in run)
