"""Each estimator counts rollouts: segments don't multiply a reward, and who abstained is as if it were not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from molt_core.api.shaping import Graded
from molt_core.experience import Group, Outcome, RolloutSummary
from molt_core.loop.shares import advantages_of, reward_batch, shares
from molt_core.plugins.factory import import_object
from molt_core.plugins.load import load_spec
from molt_core.plugins.scan import scan

ESTIMATORS = {
    one.name: one
    for one in scan().candidates
    if one.slot == "estimators" and one.dist == "molt-plugin-estimators"
}
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)
REWARDS = [[1.0, 0.0, 0.25], [0.5, None, 2.0], [None, 3.0, None], [0.1, 0.1, 0.1]]
LENGTHS = [[4, 6, 2], [8, 3, 5], [7, 1, 2], [9, 2, 4]]


def made(name: str) -> Any:
    spec = load_spec(ESTIMATORS[name])
    return import_object(spec.factory)(spec.options())


def rollout(number: str, reward: float | None, sampled: Sequence[int]) -> RolloutSummary:
    """One with `sampled` tokens in its segments, each after a prompt of 10; without a reward it abstained."""
    abstained = reward is None
    return RolloutSummary(
        rollout_id=number, group_id="", outcome=Outcome.ABSTAINED if abstained else Outcome.FINISHED,
        reward=reward, reason="abstained" if abstained else "", detail="",
        segment_tokens=tuple(size + 10 for size in sampled), segment_sampled=tuple(sampled), oldest_version=0,
        newest_version=0, info={}, prompt_text="", reply_text="", seconds=0.0, payload=number,
    )  # fmt: skip


def groups(*, with_abstained: bool = True, in_segments: bool = False) -> list[Group]:
    return [
        Group(
            group_id=str(index), task_id="", index=index, dispatched_at_version=0, started_s=0.0, finished_s=1.0,
            rollouts=tuple(
                rollout(f"{index}-{member}", reward, [1] * size if in_segments else [size])
                for member, (reward, size) in enumerate(zip(rewards, sizes, strict=True))
                if reward is not None or with_abstained
            ),
        )
        for index, (rewards, sizes) in enumerate(zip(REWARDS, LENGTHS, strict=True))
    ]  # fmt: skip


@each_estimator
def test_who_abstained_changes_nobody_s_advantage_and_trains_nothing(name: str) -> None:
    estimator = made(name)
    wanted = advantages_of(estimator, reward_batch(groups(with_abstained=False)))
    found = advantages_of(estimator, reward_batch(groups()))
    np.testing.assert_array_equal(found, wanted)
    with_them, without = (
        shares(made_groups, wanted, 2) for made_groups in (groups(), groups(with_abstained=False))
    )
    assert with_them == without
    assert with_them[0].window.num_rollouts == 9
    assert with_them[0].window.num_tokens == sum(map(sum, LENGTHS)) - 3 - 7 - 2


@each_estimator
def test_a_rollout_in_many_segments_is_one_reward_and_one_baseline_entry(name: str) -> None:
    estimator = made(name)
    whole, cut = (groups(in_segments=in_segments) for in_segments in (False, True))
    batches = [reward_batch(made_groups) for made_groups in (whole, cut)]
    for field in ("rewards", "groups", "num_tokens"):
        np.testing.assert_array_equal(*(getattr(batch, field) for batch in batches))
    advantages = advantages_of(estimator, batches[0])
    np.testing.assert_array_equal(advantages_of(estimator, batches[1]), advantages)
    assert shares(whole, advantages, 1)[0].window == shares(cut, advantages, 1)[0].window
    for share in shares(cut, advantages, 3):
        for item in share.items:
            assert item.advantage == advantages[item.rollout_index]
            assert item.rollout_tokens == batches[0].num_tokens[item.rollout_index]


@each_estimator
def test_what_is_left_alone_of_a_group_has_no_advantage_where_groups_are_compared(name: str) -> None:
    alone = reward_batch(groups()).groups.tolist().index(2)
    advantages = advantages_of(made(name), reward_batch(groups()))
    if load_spec(ESTIMATORS[name]).needs_groups:  # type: ignore[attr-defined]
        assert advantages[alone] == 0.0
        assert (advantages[-3:] == 0.0).all(), "equal rewards"


def test_each_rollout_is_penalised_once_by_its_longest_segment() -> None:
    seen: list[Graded] = []

    class Recorder:
        def shape(self, graded: Sequence[Graded]) -> list[float]:
            seen.extend(graded)
            return [one.reward for one in graded]

    cut = (rollout("a", 1.0, [3, 9, 2]), rollout("b", None, [50]), rollout("c", 0.0, [4]))
    reward_batch([evolve(groups()[0], rollouts=cut)], Recorder())
    assert [(one.reward, one.reply_tokens, one.context_tokens) for one in seen] == [
        (1.0, 9, 19),
        (0.0, 4, 14),
    ]
