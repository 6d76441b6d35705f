"""Filters and penalties, on cases small enough to check on paper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_shaping.filters import Dynamic, Varied
from molt_plugin_shaping.penalties import Penalties
from molt_plugin_shaping.spec import DynamicOptions, NoOptions, PenaltyOptions

from molt_core.api.shaping import Graded, Limits

LIMITS = Limits(max_tokens=100, max_length=1000)


def graded(reward: float = 1.0, *, length: int = 10, context: int = 20, truncated: bool = False) -> Graded:
    return Graded(reward=reward, truncated=truncated, reply_tokens=length, context_tokens=context)


def shaped(one: Graded, **options: object) -> float:
    (value,) = Penalties(PenaltyOptions(**options), LIMITS).shape([one])  # type: ignore[arg-type]
    return value


@pytest.mark.parametrize(
    ("rewards", "kept"),
    [
        ([0.0, 0.0], False), ([1.0, 1.0], False), ([1.0, 0.0], True), ([1.0, 1.0, 1.0, 0.0], True),
        ([None, 1.0], True), ([None, None], True),
    ],
)  # fmt: skip
def test_dynamic_keeps_what_is_solved_sometimes(rewards: list[float | None], kept: bool) -> None:
    assert Dynamic(DynamicOptions()).keeps(rewards) is kept


@pytest.mark.parametrize(("rewards", "kept"), [([None, 1.0, 1.0], True), ([None], True), ([1.0, 1.0], False)])
def test_an_unscored_rollout_might_have_made_the_difference(rewards: list[float | None], kept: bool) -> None:
    assert Varied(NoOptions()).keeps(rewards) is kept


def test_the_interval_is_open() -> None:
    tight = Dynamic(DynamicOptions(low=0.25, high=0.75))
    assert not tight.keeps([1.0, 0.0, 0.0, 0.0])
    assert not tight.keeps([1.0, 1.0, 1.0, 0.0])
    assert tight.keeps([1.0, 0.0])


def test_a_reward_of_0_is_a_reward() -> None:
    assert not Varied(NoOptions()).keeps([0.0, 0.0, 0.0])


@given(value=st.floats(-1e6, 1e6), number=st.integers(2, 9))
def test_equal_rewards_say_nothing_whatever_they_are(value: float, number: int) -> None:
    assert not Varied(NoOptions()).keeps([value] * number)


@given(value=st.floats(-1e6, 1e6), number=st.integers(1, 8))
def test_one_that_differs_is_enough(value: float, number: int) -> None:
    assert Varied(NoOptions()).keeps([value] * number + [value + 1.0])


@pytest.mark.parametrize(
    ("length", "penalty"), [(50, 0.0), (80, 0.0), (85, 0.25), (90, 0.5), (100, 1.0), (120, 1.0)]
)
def test_overlong_rises_over_the_buffer(length: int, penalty: float) -> None:
    assert shaped(graded(length=length), overlong_buffer=20) == pytest.approx(1.0 - penalty)


def test_overlong_of_the_context_counts_the_longest_segment() -> None:
    one = graded(length=100, context=950)
    assert shaped(one, overlong_buffer=100, overlong_of="context", overlong_factor=2.0) == pytest.approx(0.0)


@pytest.mark.parametrize(("coef", "value"), [(0.5, 0.5), (0.0, 0.0), (-1.0, -1.0)])
def test_stop_penalty_touches_truncated_ones_only(coef: float, value: float) -> None:
    assert shaped(graded(truncated=True), stop_coef=coef) == value
    assert shaped(graded(), stop_coef=coef) == 1.0


def test_bounds_come_last() -> None:
    assert shaped(graded(5.0, length=100), overlong_buffer=20, overlong_factor=9.0, clip=(-1.0, 1.0)) == -1.0
    assert shaped(graded(5.0), clip=(-1.0, 1.0)) == 1.0


def test_nothing_asked_for_changes_nothing() -> None:
    assert shaped(graded(0.3, truncated=True, length=100)) == 0.3


@pytest.mark.parametrize(
    "bad", [{"overlong_buffer": 5, "stop_coef": 0.5}, {"clip": (1.0,)}, {"clip": (2.0, 1.0)}]
)
def test_options_that_contradict_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="."):
        PenaltyOptions(**bad)  # type: ignore[arg-type]


def test_a_reversed_band_is_refused() -> None:
    with pytest.raises(ValueError, match="low must be below high"):
        DynamicOptions(low=1.0, high=0.0)
