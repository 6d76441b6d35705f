"""Which items share a forward pass: trees of one prompt, and rows under a token budget. Pure numpy.

In: the items of one rank. Out: rows. Does not balance ranks, and does not depend on anything but its
arguments, so equal items give equal rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molt_core.experience import TrainItem
from molt_plugin_fsdp.row import Branch, Row, Tree, make_row


def pack(items: Sequence[TrainItem], *, max_tokens: int, share_prompts: bool) -> list[Row]:
    """Rows of at most `max_tokens` input tokens, first fit by falling size.

    Args:
        items: segments with at least one token before the first sampled one.
        max_tokens: an item that alone is longer gets a row of its own.
        share_prompts: items with equal tokens before the first sampled one become branches of one tree, as
            many as fit into a row. Otherwise each tree has one branch.

    Raises:
        ValueError: the first token of an item is sampled, so nothing predicts it.
    """
    rows: list[list[Tree]] = []
    room: list[int] = []
    for tree in sorted(_trees(items, max_tokens, share_prompts), key=lambda tree: -tree.num_tokens):
        number = next((number for number, free in enumerate(room) if tree.num_tokens <= free), len(rows))
        if number == len(rows):
            rows.append([])
            room.append(max_tokens)
        rows[number].append(tree)
        room[number] -= tree.num_tokens
    return [make_row(trees) for trees in rows]


def _trees(items: Sequence[TrainItem], max_tokens: int, share_prompts: bool) -> list[Tree]:
    trees: list[Tree] = []
    growing: dict[bytes, Tree] = {}
    for item in items:
        sampled = np.flatnonzero(item.segment.sampled)
        if len(sampled) == 0:
            continue  # nothing to train on
        branch = Branch(item, int(sampled[0]), int(sampled[-1]))
        if branch.first == 0:
            raise ValueError(
                f"the first token of rollout {item.rollout_index} is sampled: nothing predicts it"
            )
        tree = growing.get(branch.prompt.tobytes())
        if share_prompts and tree is not None and tree.num_tokens + len(branch.rest) <= max_tokens:
            tree.branches.append(branch)
            tree.num_tokens += len(branch.rest)
            continue
        tree = growing[branch.prompt.tobytes()] = Tree([branch], branch.last)
        trees.append(tree)
    return trees
