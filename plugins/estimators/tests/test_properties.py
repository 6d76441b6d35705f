"""What must hold for any rewards of whole rollouts: order, scale, counting, and exact zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_estimator import make
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from molt_core.api.estimator import RewardBatch

WITHIN_GROUPS: dict[str, Any] = {
    name: make(name) for name in ("reinforce++-baseline", "grpo", "dr_grpo", "rloo")
}
ALL = WITHIN_GROUPS | {name: make(name) for name in ("reinforce++", "flash_reinforce")}
each_of_all = pytest.mark.parametrize("estimator", ALL.values(), ids=ALL)
each_within_groups = pytest.mark.parametrize("estimator", WITHIN_GROUPS.values(), ids=WITHIN_GROUPS)

# multiples of 1/64 in a wide range: equal means equal, and differences are never as small as rounding
reward = st.integers(-640, 640).map(lambda value: value / 64)


@st.composite
def batches(draw: st.DrawFn, min_rollouts: int = 1) -> RewardBatch:
    size = draw(st.integers(min_rollouts, 24))
    labels = draw(arrays(np.int64, size, elements=st.integers(0, 5)))
    return RewardBatch(
        rewards=draw(arrays(np.float64, size, elements=reward)),
        groups=np.unique(labels, return_inverse=True)[1].astype(np.int64),
        num_tokens=draw(arrays(np.int64, size, elements=st.integers(1, 500))),
    )


def with_rewards(batch: RewardBatch, rewards: Any) -> RewardBatch:
    return RewardBatch(rewards=np.asarray(rewards, float), groups=batch.groups, num_tokens=batch.num_tokens)


@each_of_all
@given(batch=batches(), data=st.data())
def test_order_of_rollouts_and_numbers_of_groups_do_not_matter(
    estimator: Any, batch: RewardBatch, data: Any
) -> None:
    size, num_groups = len(batch.rewards), batch.groups.max() + 1
    order = np.array(data.draw(st.permutations(range(size))))
    renumbered = np.array(data.draw(st.permutations(range(num_groups))))
    shuffled = RewardBatch(
        rewards=batch.rewards[order],
        groups=renumbered[batch.groups][order],
        num_tokens=batch.num_tokens[order],
    )
    np.testing.assert_allclose(
        estimator.advantages(shuffled), estimator.advantages(batch)[order], rtol=1e-9, atol=1e-9
    )


@each_of_all
@given(batch=batches())
def test_result_is_finite_float64_and_inputs_are_untouched(estimator: Any, batch: RewardBatch) -> None:
    before = batch.rewards.copy(), batch.groups.copy(), batch.num_tokens.copy()
    advantages = estimator.advantages(batch)
    assert advantages.dtype == np.float64
    assert advantages.shape == batch.rewards.shape
    assert np.isfinite(advantages).all()
    assert not np.shares_memory(advantages, batch.rewards)
    for array, copy in zip((batch.rewards, batch.groups, batch.num_tokens), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@each_within_groups
@given(batch=batches(), value=st.floats(-1e6, 1e6, allow_subnormal=False))
def test_a_group_of_equal_rewards_gets_exactly_zero(estimator: Any, batch: RewardBatch, value: float) -> None:
    rewards = np.where(batch.groups == 0, value, batch.rewards)
    advantages = estimator.advantages(with_rewards(batch, rewards))
    assert (advantages[batch.groups == 0] == 0.0).all()


@each_of_all
@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, -0.3, 1e-12, 1e12, 0.0])
def test_a_batch_of_equal_rewards_gets_exactly_zero(estimator: Any, value: float) -> None:
    batch = RewardBatch(rewards=np.full(8, value), groups=np.zeros(8, int), num_tokens=np.arange(1, 9))
    assert (estimator.advantages(batch) == 0.0).all()


@each_within_groups
def test_rewards_that_differ_by_rounding_are_equal(estimator: Any) -> None:
    rewards = np.array([0.1 + 0.2, 0.3, 0.3, 0.1 * 3])
    assert len(set(rewards.tolist())) > 1
    batch = RewardBatch(rewards=rewards, groups=np.zeros(4, int), num_tokens=np.ones(4, int))
    assert (estimator.advantages(batch) == 0.0).all()


@each_within_groups
@given(rewards=arrays(np.float64, st.integers(1, 10), elements=reward))
def test_groups_of_one_get_exactly_zero(estimator: Any, rewards: Any) -> None:
    size = len(rewards)
    batch = RewardBatch(rewards=rewards, groups=np.arange(size), num_tokens=np.arange(1, size + 1))
    assert (estimator.advantages(batch) == 0.0).all()


@each_of_all
@given(batch=batches(), shift=reward)
def test_a_constant_added_to_all_rewards_changes_nothing(
    estimator: Any, batch: RewardBatch, shift: float
) -> None:
    shifted = with_rewards(batch, batch.rewards + shift)
    np.testing.assert_allclose(
        estimator.advantages(shifted), estimator.advantages(batch), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("name", ["dr_grpo", "rloo", "flash_reinforce"])
@given(batch=batches(), scale=st.sampled_from([1e-3, 0.5, 3.0, 1e4]))
def test_advantages_that_are_not_divided_scale_with_the_rewards(
    name: str, batch: RewardBatch, scale: float
) -> None:
    scaled = with_rewards(batch, scale * batch.rewards)
    np.testing.assert_allclose(
        ALL[name].advantages(scaled), scale * ALL[name].advantages(batch), rtol=1e-9, atol=1e-12 * scale
    )


@pytest.mark.parametrize("name", ["grpo", "reinforce++", "reinforce++-baseline"])
@given(batch=batches(), scale=st.sampled_from([0.5, 3.0, 1e4]))
def test_advantages_that_are_divided_do_not(name: str, batch: RewardBatch, scale: float) -> None:
    scaled = with_rewards(batch, scale * batch.rewards)
    # eps of grpo, and a least variance of whitening that rewards in multiples of 1/64 stay above
    np.testing.assert_allclose(
        ALL[name].advantages(scaled), ALL[name].advantages(batch), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
@given(batch=batches())
def test_group_baselines_see_their_own_group_only(name: str, batch: RewardBatch) -> None:
    advantages = ALL[name].advantages(batch)
    for group in range(batch.groups.max() + 1):
        own = batch.groups == group
        alone = RewardBatch(
            rewards=batch.rewards[own], groups=batch.groups[own] * 0, num_tokens=batch.num_tokens[own]
        )
        np.testing.assert_allclose(ALL[name].advantages(alone), advantages[own], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "flash_reinforce"])
@given(batch=batches())
def test_baselines_count_rollouts_not_tokens(name: str, batch: RewardBatch) -> None:
    of_one_token = RewardBatch(
        rewards=batch.rewards, groups=batch.groups, num_tokens=np.ones(len(batch.rewards), np.int64)
    )
    np.testing.assert_array_equal(ALL[name].advantages(batch), ALL[name].advantages(of_one_token))


@given(batch=batches(min_rollouts=2))
def test_whitened_tokens_have_mean_zero_and_variance_one(batch: RewardBatch) -> None:
    tokens = np.repeat(ALL["reinforce++"].advantages(batch), batch.num_tokens)
    if np.ptp(batch.rewards) > 0:
        assert abs(tokens.mean()) < 1e-9
        assert abs(tokens.var() - 1) < 1e-6


@given(batch=batches())
def test_without_whitening_the_reward_is_left_and_the_baseline_variant_is_dr_grpo(batch: RewardBatch) -> None:
    np.testing.assert_array_equal(make("reinforce++", whiten=False).advantages(batch), batch.rewards)
    centred = make("reinforce++-baseline", whiten=False).advantages(batch)
    np.testing.assert_array_equal(centred, ALL["dr_grpo"].advantages(batch))


@given(batch=batches())
def test_rloo_is_dr_grpo_times_n_over_n_minus_1(batch: RewardBatch) -> None:
    sizes = np.bincount(batch.groups)[batch.groups]
    factor = np.where(sizes > 1, sizes / np.maximum(sizes - 1, 1), 1.0)
    np.testing.assert_allclose(
        ALL["rloo"].advantages(batch), factor * ALL["dr_grpo"].advantages(batch), rtol=1e-12
    )


@each_of_all
def test_no_rollouts_give_no_advantages(estimator: Any) -> None:
    empty = RewardBatch(rewards=np.zeros(0), groups=np.zeros(0, int), num_tokens=np.zeros(0, int))
    assert estimator.advantages(empty).shape == (0,)
