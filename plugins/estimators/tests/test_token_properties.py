"""What must hold for any advantages of tokens: ranks, order, laws between estimators, and finite results."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from every_estimator import make
from hypothesis import given, settings
from hypothesis import strategies as st

from molt_core.api.estimator import FloatVector, RewardBatch, TokenAdvantages, TokenRollouts

CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "returns": ("reinforce++", {"gamma": 0.9, "turn_rewards": True}),
    "returns with a steered penalty": (
        "reinforce++", {"kl_coef": 0.1, "kl_form": "k3", "kl_target": 0.05, "kl_horizon": 10.0},
    ),
    "gae": ("gae", {"gamma": 0.95, "lam": 0.9}),
    "gae with a penalty": ("gae", {"kl_coef": 0.1, "whiten": False}),
    "distillation": ("on_policy_distill", {}),
}  # fmt: skip
each = pytest.mark.parametrize(("name", "options"), CHOICES.values(), ids=CHOICES)
quick = settings(max_examples=20, deadline=None)


@st.composite
def rollouts(draw: st.DrawFn) -> list[TokenRollouts]:
    """Each rollout alone."""
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    return [
        TokenRollouts(
            starts=np.array([0, length]),
            rewards=rng.integers(-3, 4, length) / 2,
            reference_log_ratio=rng.normal(0, 0.5, length),
            values=rng.normal(0, 1, length),
        )
        for length in lengths
    ]


def joined(parts: Sequence[TokenRollouts]) -> TokenRollouts:
    def all_of(name: str) -> FloatVector:
        return np.concatenate([np.zeros(0), *(getattr(part, name) for part in parts)])

    return TokenRollouts(
        starts=np.cumsum([0, *(len(part.rewards) for part in parts)]),
        rewards=all_of("rewards"),
        reference_log_ratio=all_of("reference_log_ratio"),
        values=all_of("values"),
    )


def alone(vector: FloatVector) -> FloatVector:
    return vector


def on_ranks(
    shares: Sequence[TokenRollouts], name: str, options: dict[str, Any]
) -> tuple[list[TokenAdvantages], list[Any]]:
    """What each of several ranks makes of its share, each with an estimator of its own."""
    meeting = threading.Barrier(len(shares), timeout=20)
    vectors: list[Any] = [None] * len(shares)
    results: list[Any] = [None] * len(shares)
    estimators = [make(name, **options) for _ in shares]

    def rank(number: int) -> None:
        def summed(vector: FloatVector) -> FloatVector:
            vectors[number] = vector
            meeting.wait()
            total = np.sum(vectors, axis=0)
            meeting.wait()
            return total

        results[number] = estimators[number].token_advantages(shares[number], summed)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(shares))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, estimators


@each
@pytest.mark.parametrize("world_size", [2, 3])
@given(parts=rollouts(), data=st.data())
@quick
def test_the_number_of_ranks_and_the_order_of_rollouts_do_not_matter(
    name: str, options: dict[str, Any], world_size: int, parts: list[TokenRollouts], data: Any
) -> None:
    one = make(name, **options)
    wanted = one.token_advantages(joined(parts), alone)
    owner = data.draw(st.lists(st.integers(0, world_size - 1), min_size=len(parts), max_size=len(parts)))
    order = data.draw(st.permutations(range(len(parts))))
    shares = [[part for part in order if owner[part] == rank] for rank in range(world_size)]
    found, others = on_ranks([joined([parts[k] for k in share]) for share in shares], name, options)
    starts = joined(parts).starts
    for share, made in zip(shares, found, strict=True):
        at = np.concatenate([np.zeros(0, int), *(np.arange(starts[k], starts[k + 1]) for k in share)]).astype(
            int
        )
        np.testing.assert_allclose(made.advantages, wanted.advantages[at], rtol=1e-9, atol=1e-9)
        if wanted.returns is not None:
            np.testing.assert_allclose(made.returns, wanted.returns[at], rtol=1e-9, atol=1e-9)
        assert made.metrics == pytest.approx(wanted.metrics)
    if hasattr(one, "state"):
        assert all(other.state() == pytest.approx(one.state()) for other in others)


@given(parts=rollouts())
@quick
def test_one_reward_at_the_end_without_discount_is_one_advantage_for_the_rollout(
    parts: list[TokenRollouts],
) -> None:
    whole = joined(parts)
    lengths = np.diff(whole.starts)
    batch = RewardBatch(
        rewards=np.add.reduceat(whole.rewards, whole.starts[:-1]),
        groups=np.zeros(len(parts), int),
        num_tokens=lengths,
    )
    found = make("reinforce++").token_advantages(whole, alone).advantages
    wanted = np.repeat(make("reinforce++").advantages(batch), lengths)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@given(parts=rollouts(), gamma=st.sampled_from([1.0, 0.9]))
@quick
def test_gae_with_lambda_1_is_the_return_minus_the_value_and_its_returns_do_not_see_the_critic(
    parts: list[TokenRollouts], gamma: float
) -> None:
    whole = joined(parts)
    made = make("gae", gamma=gamma, lam=1.0, whiten=False).token_advantages(whole, alone)
    returns = make("reinforce++", gamma=gamma, turn_rewards=True, whiten=False).token_advantages(whole, alone)
    np.testing.assert_allclose(made.returns, returns.advantages, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made.advantages, returns.advantages - whole.values, rtol=1e-9, atol=1e-9)


@given(parts=rollouts())
@quick
def test_gae_with_a_perfect_critic_finds_nothing(parts: list[TokenRollouts]) -> None:
    whole = joined(parts)
    values = make("gae", gamma=0.9, whiten=False).token_advantages(whole, alone).returns
    perfect = evolve(whole, values=values)
    made = make("gae", gamma=0.9, lam=0.7, whiten=False).token_advantages(perfect, alone)
    np.testing.assert_allclose(made.advantages, 0, atol=1e-9)


@each
@given(parts=rollouts())
@quick
def test_rollouts_do_not_see_one_another_before_whitening(
    name: str, options: dict[str, Any], parts: list[TokenRollouts]
) -> None:
    options = options if name == "on_policy_distill" else {**options, "whiten": False}
    together = make(name, **options).token_advantages(joined(parts), alone).advantages
    one_by_one = [make(name, **options).token_advantages(part, alone).advantages for part in parts]
    np.testing.assert_allclose(together, np.concatenate(one_by_one), rtol=1e-12, atol=1e-12)


@each
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1000.0, -1000.0])
def test_extreme_log_ratios_give_finite_advantages(name: str, options: dict[str, Any], poison: float) -> None:
    tokens = TokenRollouts(
        starts=np.array([0, 3]), rewards=np.array([0.0, 0.0, 1.0]), values=np.zeros(3),
        reference_log_ratio=np.array([0.1, poison, -0.1]),
    )  # fmt: skip
    assert np.isfinite(make(name, **options).token_advantages(tokens, alone).advantages).all()


@each
def test_no_tokens_give_no_advantages_and_finite_metrics(name: str, options: dict[str, Any]) -> None:
    nothing = TokenRollouts(
        starts=np.zeros(1, int), rewards=np.zeros(0), reference_log_ratio=np.zeros(0), values=np.zeros(0)
    )
    made = make(name, **options).token_advantages(nothing, alone)
    assert made.advantages.shape == (0,)
    assert all(np.isfinite(value) for value in made.metrics.values())


@pytest.mark.parametrize("name", ["reinforce++", "gae"])
def test_equal_returns_are_exactly_zero_after_whitening(name: str) -> None:
    tokens = TokenRollouts(
        starts=np.array([0, 2, 3]), rewards=np.array([0.0, 0.1, 0.1]), values=np.zeros(3), reference_log_ratio=None
    )  # fmt: skip
    assert (make(name).token_advantages(tokens, alone).advantages == 0.0).all()


@pytest.mark.parametrize("name", ["reinforce++", "gae"])
def test_a_steered_coefficient_is_saved_and_restored(name: str) -> None:
    options = {"kl_coef": 0.1, "kl_target": 0.01, "kl_horizon": 10.0}
    tokens = TokenRollouts(
        starts=np.array([0, 2]), rewards=np.array([0.0, 1.0]), values=np.zeros(2),
        reference_log_ratio=np.array([0.5, 0.5]),
    )  # fmt: skip
    first, second = make(name, **options), make(name, **options)
    for _ in range(2):
        first.token_advantages(tokens, alone)
    second.restore(first.state())
    assert first.state()["kl_coef"] == pytest.approx(0.1 * 1.02**2)
    made, again = (one.token_advantages(tokens, alone) for one in (first, second))
    assert made.metrics == again.metrics
    np.testing.assert_array_equal(made.advantages, again.advantages)


@pytest.mark.parametrize("name", ["reinforce++", "gae"])
def test_the_steered_coefficient_is_the_one_that_is_taken_off_the_rewards(name: str) -> None:
    options = {"kl_coef": 0.1, "kl_target": 0.01, "kl_horizon": 10.0, "whiten": False}
    tokens = TokenRollouts(
        starts=np.array([0, 2]), rewards=np.array([0.0, 1.0]), values=np.zeros(2),
        reference_log_ratio=np.array([0.5, 0.5]),
    )  # fmt: skip
    estimator = make(name, **options)
    for coef in (0.1, 0.1 * 1.02, 0.1 * 1.02**2):
        found = estimator.token_advantages(tokens, alone).advantages
        np.testing.assert_allclose(found, [1 - 2 * 0.5 * coef, 1 - 0.5 * coef])
