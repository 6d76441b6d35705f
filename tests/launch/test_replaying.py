"""What counts as equal when a recorded step is trained again."""

from __future__ import annotations

import math

import pytest
from attrs import evolve

from molt_core.launch.record import Outcome
from molt_core.launch.replaying import differences

THEN = Outcome(
    step=3, version=3, applied=True, metrics={"policy/loss": 0.5, "policy/grad_norm": 2.0}, weights="a" * 64
)


def again(loss: float = 0.5, norm: float = 2.0, **changes) -> Outcome:
    return evolve(THEN, metrics={"policy/loss": loss, "policy/grad_norm": norm}, **changes)


def test_by_as_many_ranks_every_bit_counts():
    assert list(differences(THEN, again(), to_the_bit=True)) == []
    found = list(differences(THEN, again(math.nextafter(0.5, 1), weights="b" * 64), to_the_bit=True))
    assert found == ["loss 0.5 -> 0.5000000000000001", f"weights {'a' * 12} -> {'b' * 12}"]


def test_by_another_number_of_ranks_a_percent_is_allowed_and_weights_are_not_compared():
    assert list(differences(THEN, again(0.504, 1.985, weights="b" * 64), to_the_bit=False)) == []
    assert list(differences(THEN, again(0.51, 1.9), to_the_bit=False)) == [
        "loss 0.5 -> 0.51",
        "grad norm 2.0 -> 1.9",
    ]
    near_zero = evolve(THEN, metrics={"policy/loss": 1e-9, "policy/grad_norm": 2.0})
    assert list(differences(near_zero, again(-2e-8), to_the_bit=False)) == []


@pytest.mark.parametrize("to_the_bit", [True, False])
def test_a_step_that_was_skipped_has_to_be_skipped_again(to_the_bit):
    skipped = again(math.nan, math.inf, applied=False, weights="")
    assert list(differences(skipped, skipped, to_the_bit=to_the_bit)) == []
    assert "was skipped, and now is not" in list(differences(skipped, again(), to_the_bit=to_the_bit))
