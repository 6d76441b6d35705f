"""Pacing: the promise that no admitted group is ever too stale."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from molt_core.loop.pacing import choose, feasible, may_start


def test_strictly_on_policy_starts_only_what_this_round_consumes():
    claims = {"prompts_per_step": 4, "max_staleness": 0, "rounds": 10}

    assert may_start(3, 0, **claims)
    assert not may_start(4, 0, **claims)
    assert may_start(4, 1, **claims)


def test_staleness_of_one_lets_the_next_round_start_early():
    claims = {"prompts_per_step": 4, "max_staleness": 1, "rounds": 10}

    assert may_start(7, 0, **claims)
    assert not may_start(8, 0, **claims)


def test_nothing_starts_that_no_round_would_consume():
    assert not may_start(8, 1, prompts_per_step=4, max_staleness=5, rounds=2)


def test_groups_that_finished_first_are_taken_first():
    assert choose([3, 2, 3], [], 1, prompts_per_step=2) == (0, 1)


def test_a_group_due_now_is_waited_for():
    assert choose([3, 3], [1], 1, prompts_per_step=2) is None


def test_earliest_deadlines_go_first_when_another_would_be_late():
    assert choose([4, 4, 1], [], 1, prompts_per_step=2) == (2, 0)


def test_too_few_groups_are_waited_for():
    assert choose([1], [1], 1, prompts_per_step=2) is None


@pytest.mark.parametrize(
    ("deadlines", "expected"),
    [([1, 1], True), ([1, 1, 1], False), ([1, 1, 2], True), ([0], False), ([], True)],
)
def test_feasible_counts_places_up_to_each_deadline(deadlines, expected):
    assert feasible(deadlines, 1, prompts_per_step=2) is expected


@given(
    prompts_per_step=st.integers(1, 4),
    max_staleness=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=400)
def test_any_order_of_finishes_and_drops_keeps_every_deadline(prompts_per_step, max_staleness, seed):
    schedule = random.Random(seed)
    rounds = 6
    claims = {"prompts_per_step": prompts_per_step, "max_staleness": max_staleness, "rounds": rounds}
    ready: list[int] = []
    pending: list[int] = []
    num_claimed = round_number = 0
    while round_number < rounds:
        while may_start(num_claimed, round_number, **claims):
            pending.append(round_number + max_staleness)
            num_claimed += 1
        choice = choose(ready, pending, round_number, prompts_per_step=prompts_per_step)
        finishing = bool(pending) and (choice is None or schedule.random() < 0.5)
        if finishing:
            deadline = pending.pop(schedule.randrange(len(pending)))
            if schedule.random() < 0.2:
                num_claimed -= 1
            else:
                ready.append(deadline)
            continue
        assert choice is not None, "everything has finished, so a step must be possible"
        assert all(ready[index] >= round_number for index in choice), "consumed after its deadline"
        ready = [deadline for index, deadline in enumerate(ready) if index not in choice]
        round_number += 1
    assert not ready
    assert not pending
