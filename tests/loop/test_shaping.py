"""Filters, incomplete groups and shaped rewards in the whole loop, over fakes on virtual time."""

from __future__ import annotations

import pytest

from molt_core.api.events import StepFinished
from molt_core.errors import RunError
from molt_core.experience import Outcome
from molt_core.testing import FakeSampler
from tests.loop.test_controller import Run


class KeepsNone:
    def keeps(self, rewards):
        return False


class KeepsVaried:
    def __init__(self):
        self.seen = []

    def keeps(self, rewards):
        self.seen.append(rewards)
        return len(set(rewards)) > 1


class Halves:
    def shape(self, graded):
        return [one.reward / 2 for one in graded]


def varied_in_every_third(request):
    group, member = map(int, request.rollout_id.split("-"))
    return float(member == 0 and group % 3 == 0)


def test_a_filtered_group_is_replaced_by_the_next_prompt(tmp_path):
    keeps = KeepsVaried()
    run = Run(tmp_path, group_filter=keeps)
    run.sampler = FakeSampler(run.policy, reward=varied_in_every_third)

    assert run.start() == "done"
    trained = [int(name.split("-")[0]) for step in run.trained_rollouts for name in step]
    assert len(trained) == 16, "every step is full"
    assert all(group % 3 == 0 for group in trained)
    counts = run.ledger.as_dict()
    assert counts["prompts"]["trained"] == 8
    assert counts["prompts"]["dropped"]["filtered"] >= 8
    for unit in ("prompts", "rollouts", "tokens"):
        of = counts[unit]
        assert of["dispatched"] == of["trained"] + sum(of["dropped"].values()) + of["pending"]


def test_a_filter_that_keeps_nothing_ends_the_run_with_the_cause(tmp_path):
    with pytest.raises(RunError, match="dropped 1000 prompts in a row"):
        Run(tmp_path, group_filter=KeepsNone()).start()


@pytest.mark.parametrize(("policy", "num_trained"), [("keep", 3), ("drop", 0)])
def test_incomplete_groups_are_kept_or_dropped(tmp_path, policy, num_trained):
    run = Run(tmp_path, group_size=4, prompts_per_step=1, steps=1, num_tasks=1, incomplete_groups=policy)
    run.sampler = FakeSampler(
        run.policy,
        outcome=lambda request: Outcome.FAILED if request.rollout_id == "0-0" else Outcome.FINISHED,
    )
    run.start()
    assert sum(map(len, run.trained_rollouts)) == num_trained
    assert run.ledger.as_dict()["rollouts"]["dropped"].get("incomplete_group", 0) == 3 - num_trained


def test_a_filter_sees_raw_rewards_and_the_estimator_shaped_ones(tmp_path):
    keeps = KeepsVaried()
    run = Run(tmp_path, group_filter=keeps, shaper=Halves())
    run.sampler = FakeSampler(run.policy, reward=varied_in_every_third)
    run.start()
    assert [1.0, 0.0] in keeps.seen
    metrics = run.told(StepFinished)[0].metrics
    assert (metrics["reward/mean"], metrics["reward/shaped_mean"]) == (0.5, 0.25)
    advantages = {item.advantage for step in run.policy.trained for share in step for item in share.items}
    assert advantages == {0.25, -0.25}


class WrongNumber:
    def shape(self, graded):
        return [0.0]


def test_a_shaper_that_returns_the_wrong_number_ends_the_run(tmp_path):
    with pytest.raises(RunError, match="the shaper returned"):
        Run(tmp_path, shaper=WrongNumber()).start()
