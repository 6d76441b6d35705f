"""Rows: every sampled token once, seeing exactly its own history, within the budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_fsdp.packing import pack
from molt_plugin_fsdp.row import EMPTY_ROW, Row

from molt_core.experience import Segment, TrainItem


def item(token_ids: list[int], sampled: list[bool], index: int = 0) -> TrainItem:
    size = len(token_ids)
    made = Segment(
        token_ids=token_ids,
        sampled=sampled,
        logprobs=np.where(sampled, -(np.arange(size) + 1) / 8 - index, 0.0),
        versions=np.where(sampled, 0, -1),
    )
    return TrainItem(
        segment=made, advantage=index + 0.5, rollout_index=index, group_index=index // 2,
        rollout_tokens=made.num_sampled, group_tokens=2 * made.num_sampled, segment_index=0,
        token_rewards=np.zeros(made.num_sampled, np.float32),
    )  # fmt: skip


@st.composite
def items(draw: st.DrawFn) -> list[TrainItem]:
    prompts = draw(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=3))
    made = []
    for index in range(draw(st.integers(1, 10))):
        prompt = draw(st.sampled_from(prompts))
        rest = draw(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=8))
        token_ids = prompt + [token for token, _ in rest]
        made.append(item(token_ids, [False] * len(prompt) + [sampled for _, sampled in rest], index))
    return made


def history(row: Row, target: int) -> tuple[list[int], list[int]]:
    """Token ids and positions that the target's prediction can see, in the order of positions."""
    seen = np.flatnonzero(row.visible()[row.predictors[target]])
    order = np.argsort(row.position_ids[seen], kind="stable")
    return row.token_ids[seen][order].tolist(), row.position_ids[seen][order].tolist()


@given(made=items(), max_tokens=st.integers(1, 60), share=st.booleans())
def test_every_sampled_token_is_predicted_once_from_exactly_what_came_before_it(
    made: list[TrainItem], max_tokens: int, share: bool
) -> None:
    predicted = []
    for row in pack(made, max_tokens=max_tokens, share_prompts=share):
        for n, target in enumerate(row.targets):
            token_ids, positions = history(row, n)
            assert positions == list(range(len(positions)))
            predicted.append(
                (
                    int(row.rollout_index[n]), int(row.group_index[n]), len(positions), token_ids, int(target),
                    float(row.behaviour_logprobs[n]), float(row.advantages[n]),
                )
            )  # fmt: skip
    wanted = [
        (
            one.rollout_index, one.group_index, int(t), one.segment.token_ids[:t].tolist(),
            int(one.segment.token_ids[t]), float(one.segment.logprobs[t]), one.advantage,
        )
        for one in made
        for t in np.flatnonzero(one.segment.sampled)
    ]  # fmt: skip
    assert sorted(predicted) == sorted(wanted)


@given(made=items(), max_tokens=st.integers(1, 60), share=st.booleans())
def test_a_row_is_over_the_budget_only_when_it_holds_a_single_item(
    made: list[TrainItem], max_tokens: int, share: bool
) -> None:
    for row in pack(made, max_tokens=max_tokens, share_prompts=share):
        assert len(row.token_ids) <= max_tokens or len(set(row.rollout_index.tolist())) == 1


@given(made=items(), share=st.booleans())
def test_equal_items_give_equal_rows(made: list[TrainItem], share: bool) -> None:
    first, second = (pack(made, max_tokens=20, share_prompts=share) for _ in range(2))
    assert [row.token_ids.tolist() for row in first] == [row.token_ids.tolist() for row in second]


@given(made=items())
def test_without_sharing_positions_alone_tell_where_an_item_starts(made: list[TrainItem]) -> None:
    for row in pack(made, max_tokens=40, share_prompts=False):
        starts = np.flatnonzero(row.position_ids == 0)
        assert not row.branched
        assert starts[0] == 0
        number = np.cumsum(row.position_ids == 0)
        same_item = number[:, None] == number[None, :]
        np.testing.assert_array_equal(row.visible(), np.tril(same_item))


def test_a_group_costs_its_prompt_once() -> None:
    prompt = list(range(25))
    group = [item(prompt + [k] * 6, [False] * 25 + [True] * 6, k) for k in range(8)]
    (shared,) = pack(group, max_tokens=2048, share_prompts=True)
    (plain,) = pack(group, max_tokens=2048, share_prompts=False)
    assert shared.branched
    assert len(shared.token_ids) == 25 + 8 * 5
    assert len(plain.token_ids) == 8 * (25 + 5)


def test_items_without_a_sampled_token_need_no_row() -> None:
    assert pack([item([1, 2, 3], [False] * 3)], max_tokens=8, share_prompts=True) == []


def test_a_sampled_first_token_is_refused() -> None:
    with pytest.raises(ValueError, match="first token of rollout 4 is sampled"):
        pack([item([1, 2], [True, True], 4)], max_tokens=8, share_prompts=True)


def test_the_empty_row_has_one_token_and_no_target() -> None:
    assert len(EMPTY_ROW.token_ids) == 1
    assert len(EMPTY_ROW.targets) == 0
    assert EMPTY_ROW.visible().tolist() == [[True]]
