"""A row: one packed forward pass, and who sees whom in it. Pure numpy.

In: trees, each a prompt with the branches that follow it. Out: T input tokens from which N sampled tokens are
predicted. This is the one place where a value at its own token becomes next-token prediction. Which trees
share a row is decided in `packing`.

Positions go on after the prompt in every branch, and a token sees what is before it in its own branch and in
its tree's prompt, so each item is computed as if it were alone. The last sampled token of an item is a target
only: nothing is predicted from it, and what follows it is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from attrs import define, evolve, frozen

from molt_core.experience import TrainItem

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@frozen(eq=False)
class Branch:
    """One item, seen from its first sampled token."""

    item: TrainItem
    first: int
    """Index of the first sampled token: where the prompt ends."""
    last: int
    """Index of the last sampled token."""

    @property
    def prompt(self) -> npt.NDArray[np.int32]:
        return self.item.segment.token_ids[: self.first]

    @property
    def rest(self) -> npt.NDArray[np.int32]:
        return self.item.segment.token_ids[self.first : self.last]


@define(eq=False)
class Tree:
    """Items with one prompt. At least one branch."""

    branches: list[Branch]
    num_tokens: int
    """Input tokens: the prompt once and the rest of every branch."""


@frozen(kw_only=True, eq=False)
class Row:
    """One micro-batch. T input tokens, N sampled tokens; N may be 0."""

    token_ids: Ints
    """[T]"""
    position_ids: Ints
    """[T] position within the item, prompt included."""
    blocks: Ints
    """[T] number of the prompt or branch that the token is in."""
    prompt_blocks: Ints
    """[T] number of the prompt that the token may look back into."""
    branched: bool
    """A prompt has several branches, so that positions alone don't tell who sees whom."""
    predictors: Ints
    """[N] index of the input token from whose hidden state the sampled token is predicted."""
    targets: Ints
    """[N] id of the sampled token."""
    behaviour_logprobs: Floats
    """[N]"""
    advantages: Floats
    """[N] of the token's rollout."""
    rollout_index: Ints
    """[N]"""
    group_index: Ints
    """[N]"""
    rollout_tokens: Floats
    """[N] sampled tokens of the token's rollout."""
    group_tokens: Floats
    """[N] sampled tokens of the token's prompt."""
    segment_index: Ints
    """[N] number of the token's segment within its rollout."""
    token_index: Ints
    """[N] place of the token within its segment."""
    token_rewards: Floats
    """[N]"""
    top_ids: Ints
    """[N, k] tokens that the sampler found likeliest there; k may be 0."""
    top_behaviour_logprobs: Floats
    """[N, k]"""

    def visible(self) -> npt.NDArray[np.bool_]:
        """[T, T] bool: query token (row) sees key token (column)."""
        own = self.blocks[:, None] == self.blocks[None, :]
        prompt = self.prompt_blocks[:, None] == self.blocks[None, :]
        return np.tril(own | prompt)


def make_row(trees: Sequence[Tree]) -> Row:
    """Concatenate trees. At least one."""
    inputs: list[Mapping[str, npt.NDArray[Any]]] = []
    targets: list[Mapping[str, npt.NDArray[Any]]] = []
    num_tokens = 0

    def add_block(token_ids: npt.NDArray[np.int32], position: int, prompt_block: int) -> int:
        nonlocal num_tokens
        start, size = num_tokens, len(token_ids)
        num_tokens += size
        inputs.append(
            {
                "token_ids": token_ids,
                "position_ids": np.arange(position, position + size),
                "blocks": np.full(size, len(inputs)),
                "prompt_blocks": np.full(size, prompt_block),
            }
        )
        return start

    for tree in trees:
        prompt_block = len(inputs)
        prompt_start = add_block(tree.branches[0].prompt, 0, prompt_block)
        for branch in tree.branches:
            rest_start = add_block(branch.rest, branch.first, prompt_block)
            sampled = np.flatnonzero(branch.item.segment.sampled)
            predicted_from = sampled - 1
            start = np.where(predicted_from < branch.first, prompt_start, rest_start - branch.first)
            targets.append({"predictors": predicted_from + start, **_targets(branch.item, sampled)})
    return Row(branched=any(len(tree.branches) > 1 for tree in trees), **_joined(inputs), **_joined(targets))


def _targets(item: TrainItem, sampled: npt.NDArray[np.intp]) -> Mapping[str, npt.NDArray[Any]]:
    """What a row says of the sampled tokens of one item."""
    size, segment = len(sampled), item.segment
    none = np.zeros((size, 0))
    return {
        "targets": segment.token_ids[sampled],
        "behaviour_logprobs": segment.logprobs[sampled],
        "advantages": np.full(size, item.advantage, np.float32),
        "rollout_index": np.full(size, item.rollout_index),
        "group_index": np.full(size, item.group_index),
        "rollout_tokens": np.full(size, item.rollout_tokens, np.float32),
        "group_tokens": np.full(size, item.group_tokens, np.float32),
        "segment_index": np.full(size, item.segment_index),
        "token_index": sampled,
        "token_rewards": item.token_rewards,
        "top_ids": none.astype(np.int64) if segment.top_ids is None else segment.top_ids,
        "top_behaviour_logprobs": none if segment.top_logprobs is None else segment.top_logprobs,
    }


def _joined(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, Any]:
    """Arrays by name, one after the other: integers as int64, numbers as float32."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {
        name: array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        for name, array in joined.items()
    }


_ONE: Final = np.zeros(1, np.int64)
_NONE: Final = np.zeros(0, np.int64)
_NO_NUMBERS: Final = np.zeros(0, np.float32)
EMPTY_ROW: Final = Row(
    token_ids=_ONE, position_ids=_ONE, blocks=_ONE, prompt_blocks=_ONE, branched=False,
    predictors=_NONE, targets=_NONE, behaviour_logprobs=_NO_NUMBERS, advantages=_NO_NUMBERS, rollout_index=_NONE,
    group_index=_NONE, rollout_tokens=_NO_NUMBERS, group_tokens=_NO_NUMBERS, segment_index=_NONE, token_index=_NONE,
    token_rewards=_NO_NUMBERS, top_ids=_NONE.reshape(0, 0), top_behaviour_logprobs=_NO_NUMBERS.reshape(0, 0),
)  # fmt: skip
"""What a rank without work computes while the others still have some: one token, no targets, loss 0."""


def empty_row(num_top: int) -> Row:
    """The same, beside rows with `num_top` likely tokens."""
    ids, logprobs = np.zeros((0, num_top), np.int64), np.zeros((0, num_top), np.float32)
    return evolve(EMPTY_ROW, top_ids=ids, top_behaviour_logprobs=logprobs)
