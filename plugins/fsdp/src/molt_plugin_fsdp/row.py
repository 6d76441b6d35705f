"""A row: one packed forward pass, and who sees whom in it. Pure numpy.

In: trees, each a prompt with the branches that follow it. Out: T input tokens from which N sampled tokens are
predicted. This is the one place where a value at its own token becomes next-token prediction. Which trees
share a row is decided in `packing`.

Positions go on after the prompt in every branch, and a token sees what is before it in its own branch and in
its tree's prompt, so each item is computed as if it were alone. The last sampled token of an item is a target
only: nothing is predicted from it, and what follows it is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from attrs import define, frozen

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
    """[N]"""
    rollout_index: Ints
    """[N]"""
    group_index: Ints
    """[N]"""
    rollout_tokens: Floats
    """[N] sampled tokens of the token's rollout."""
    group_tokens: Floats
    """[N] sampled tokens of the token's prompt."""

    def visible(self) -> npt.NDArray[np.bool_]:
        """[T, T] bool: query token (row) sees key token (column)."""
        own = self.blocks[:, None] == self.blocks[None, :]
        prompt = self.prompt_blocks[:, None] == self.blocks[None, :]
        return np.tril(own | prompt)


def make_row(trees: Sequence[Tree]) -> Row:
    """Concatenate trees. At least one."""
    inputs: list[tuple[Any, ...]] = []
    targets: list[tuple[Any, ...]] = []
    num_tokens = 0

    def add_block(token_ids: npt.NDArray[np.int32], position: int, prompt_block: int) -> int:
        nonlocal num_tokens
        start, size = num_tokens, len(token_ids)
        num_tokens += size
        inputs.append(
            (
                token_ids,
                np.arange(position, position + size),
                np.full(size, len(inputs)),
                np.full(size, prompt_block),
            )
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
            size, item = len(sampled), branch.item
            targets.append(
                (
                    predicted_from + start, item.segment.token_ids[sampled], item.segment.logprobs[sampled],
                    np.full(size, item.advantage), np.full(size, item.rollout_index), np.full(size, item.group_index),
                    np.full(size, item.rollout_tokens), np.full(size, item.group_tokens),
                )
            )  # fmt: skip
    token_ids, position_ids, blocks, prompt_blocks = map(np.concatenate, zip(*inputs, strict=True))
    predictors, target_ids, logprobs, advantages, rollouts, groups, rollout_tokens, group_tokens = map(
        np.concatenate, zip(*targets, strict=True)
    )
    return Row(
        token_ids=token_ids.astype(np.int64), position_ids=position_ids, blocks=blocks, prompt_blocks=prompt_blocks,
        branched=any(len(tree.branches) > 1 for tree in trees), predictors=predictors,
        targets=target_ids.astype(np.int64), behaviour_logprobs=logprobs, advantages=advantages.astype(np.float32),
        rollout_index=rollouts, group_index=groups, rollout_tokens=rollout_tokens.astype(np.float32),
        group_tokens=group_tokens.astype(np.float32),
    )  # fmt: skip


_ONE: Final = np.zeros(1, np.int64)
_NONE: Final = np.zeros(0, np.int64)
EMPTY_ROW: Final = Row(
    token_ids=_ONE, position_ids=_ONE, blocks=_ONE, prompt_blocks=_ONE, branched=False,
    predictors=_NONE, targets=_NONE, behaviour_logprobs=np.zeros(0, np.float32),
    advantages=np.zeros(0, np.float32), rollout_index=_NONE, group_index=_NONE,
    rollout_tokens=np.zeros(0, np.float32), group_tokens=np.zeros(0, np.float32),
)  # fmt: skip
"""What a rank without work computes while the others still have some: one token, no targets, loss 0."""
