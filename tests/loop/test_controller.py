"""The whole loop over fakes on virtual time: staleness, ledger, evaluation, faults, endings."""

from __future__ import annotations

import random
import weakref
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from molt_core.api.events import EvalFinished, RolloutFinished, RunFinished, StepFinished, WeightsPublished
from molt_core.api.run_options import RunOptions
from molt_core.errors import Interrupted, RunError
from molt_core.experience import Outcome
from molt_core.loop.controller import Controller, LoopParts
from molt_core.loop.evaluate import eval_tasks
from molt_core.loop.ports import RolloutsLost
from molt_core.loop.stop import StopSignal
from molt_core.report.ledger import Ledger
from molt_core.testing import FakePolicy, FakeSampler, fake_tasks, run_virtual
from tests.loop.counted import Counted


class LeavesOut(FakeSampler):
    """Each rollout has, beside its two sampled tokens, three that never train."""

    async def sample(self, request):
        return evolve(await super().sample(request), left_out_tokens={"orphan": 1, "side_call": 2})


class Centred:
    def advantages(self, batch):
        return batch.rewards - batch.rewards.mean()


class Run:
    """One run of the loop over fakes, with everything that it told."""

    def __init__(
        self, tmp_path: Path, *, policy=None, num_tasks=None, needs_groups=True, estimator=None,
        group_filter=None, shaper=None, top_logprobs=0, **options,
    ):  # fmt: skip
        settings = {
            "model": "m",
            "group_size": 2,
            "prompts_per_step": 2,
            "steps": 4,
            "eval_prompts": 0,
        } | options
        self.options = RunOptions(**settings)
        self.policy = policy or FakePolicy(step_s=3.0, publish_s=1.0)
        self.sampler = FakeSampler(self.policy)
        self.events = []
        tmp_path.mkdir(exist_ok=True)
        self.ledger = Ledger(tmp_path / "ledger.jsonl")
        self.stop_at_s: float | None = None
        self._num_tasks = num_tasks
        self._needs_groups = needs_groups
        self._estimator = estimator or Centred()
        self._more = {"group_filter": group_filter, "shaper": shaper, "top_logprobs": top_logprobs}

    def start(self) -> str:
        return run_virtual(self._run())

    async def _run(self) -> str:
        import asyncio

        stop = StopSignal()
        if self.stop_at_s is not None:
            asyncio.get_running_loop().call_later(self.stop_at_s, stop.request, "SIGINT")
        parts = LoopParts(
            sampler=self.sampler, policy=self.policy, estimator=self._estimator, needs_groups=self._needs_groups,
            tasks=fake_tasks(self._num_tasks), eval_tasks=eval_tasks(fake_tasks(), self.options.eval_prompts),
            eval_name="fake", max_tokens=8, ledger=self.ledger, notify=self.events.append, stop=stop,
            **self._more,
        )  # fmt: skip
        try:
            return await Controller(self.options, parts).run()
        finally:
            self.ended_s = asyncio.get_running_loop().time()

    def told(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def trained_rollouts(self):
        """Rollout ids per step, each rank's items together."""
        return [
            [item.payload.rollout_id for share in step for item in share.items]
            for step in self.policy.trained
        ]


def test_each_step_trains_its_groups_and_publishes_the_next_version(tmp_path):
    run = Run(tmp_path)

    assert run.start() == "done"
    assert [sorted(step) for step in run.trained_rollouts] == [
        ["0-0", "0-1", "1-0", "1-1"],
        ["2-0", "2-1", "3-0", "3-1"],
        ["4-0", "4-1", "5-0", "5-1"],
        ["6-0", "6-1", "7-0", "7-1"],
    ]
    assert [event.version for event in run.told(WeightsPublished)] == [1, 2, 3, 4]


def test_likely_tokens_are_asked_for_in_training_and_not_in_evaluation(tmp_path):
    run = Run(tmp_path, top_logprobs=5, eval_prompts=2)
    run.start()
    asked = {
        (request.rollout_id.startswith("eval"), request.top_logprobs) for request in run.sampler.requests
    }
    assert asked == {(False, 5), (True, 0)}


def test_every_sampled_token_of_a_clean_run_is_trained_once(tmp_path):
    run = Run(tmp_path)
    run.start()
    tokens = run.ledger.as_dict()["tokens"]
    assert tokens["trained"] == tokens["dispatched"] > 0
    assert tokens["dropped"] == {}


def test_strictly_on_policy_samples_only_with_the_version_it_trains(tmp_path):
    run = Run(tmp_path, max_staleness=0)
    run.start()

    versions = [
        {int(v) for share in step for item in share.items for v in item.payload.segments[0].versions[1:]}
        for step in run.policy.trained
    ]
    assert versions == [{0}, {1}, {2}, {3}]
    assert [event.metrics["staleness/max"] for event in run.told(StepFinished)] == [0, 0, 0, 0]


def test_staleness_of_one_overlaps_sampling_with_training(tmp_path):
    run = Run(tmp_path, max_staleness=1, policy=FakePolicy(step_s=1.0))
    run.start()

    assert run.told(StepFinished)[-1].metrics["staleness/max"] <= 1
    assert run.sampler.most_in_flight == 8, "two rounds of two groups of two"
    # alternating would take 8 s: four times one second of sampling and one of training
    assert sum(event.metrics["time/step_s"] for event in run.told(StepFinished)) == 5


def seconds_by(schedule: random.Random):
    return lambda request: schedule.choice([0.1, 1.0, 2.0, 9.0])


@given(
    seed=st.integers(0, 2**32), prompts_per_step=st.integers(1, 3), group_size=st.integers(2, 3),
    max_staleness=st.integers(0, 2), failing=st.sampled_from([0.0, 0.2]), unsound=st.sampled_from([0.0, 0.1]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_no_schedule_breaks_staleness_ledger_or_liveness(
    tmp_path_factory, seed, prompts_per_step, group_size, max_staleness, failing, unsound
):
    schedule = random.Random(seed)
    steps = 6
    policy = FakePolicy(
        step_s=schedule.choice([0.0, 1.0, 4.0]), publish_s=schedule.choice([0.0, 0.5]),
        applied=lambda step: schedule.random() >= unsound,
    )  # fmt: skip
    run = Run(
        tmp_path_factory.mktemp("run"), policy=policy, steps=steps, prompts_per_step=prompts_per_step,
        group_size=group_size, max_staleness=max_staleness, eval_prompts=2, eval_every=2,
    )  # fmt: skip
    outcomes = [Outcome.FAILED, Outcome.ABSTAINED]
    run.sampler = FakeSampler(
        policy, seconds=seconds_by(schedule), reward=lambda request: schedule.random(),
        outcome=lambda request: schedule.choice(outcomes) if schedule.random() < failing else Outcome.FINISHED,
    )  # fmt: skip
    try:
        run.start()
    except RunError as error:
        assert error.reason in ("non_finite_step", "nothing_to_train_on")

    trained = [rollout for step in run.trained_rollouts for rollout in step]
    assert len(trained) == len(set(trained)), "no rollout trains twice"
    assert all(event.metrics["staleness/max"] <= max_staleness for event in run.told(StepFinished))
    run.ledger.check()
    assert run.ledger.as_dict()["rollouts"]["pending"] == 0
    if run.told(RunFinished)[0].outcome == "done":
        assert len(run.policy.trained) == steps


def test_failed_rollouts_leave_their_group_smaller_and_are_counted(tmp_path):
    run = Run(tmp_path, group_size=3, steps=1)
    run.sampler = FakeSampler(
        run.policy, outcome=lambda r: Outcome.FAILED if r.rollout_id == "0-1" else Outcome.FINISHED
    )
    run.start()

    assert sorted(run.trained_rollouts[0]) == ["0-0", "0-2", "1-0", "1-1", "1-2"]
    assert run.told(StepFinished)[0].metrics["rollout/dropped/failed"] == 1


def test_a_group_with_nothing_to_compare_is_replaced_by_the_next_prompt(tmp_path):
    run = Run(tmp_path, steps=1)
    run.sampler = FakeSampler(
        run.policy, outcome=lambda r: Outcome.ABSTAINED if r.rollout_id == "0-0" else Outcome.FINISHED
    )
    run.start()

    assert sorted(run.trained_rollouts[0]) == ["1-0", "1-1", "2-0", "2-1"]
    assert run.ledger.as_dict()["rollouts"]["dropped"]["incomplete_group"] == 1


def test_when_every_rollout_fails_the_run_ends_with_the_cause(tmp_path):
    run = Run(tmp_path)
    run.sampler = FakeSampler(run.policy, outcome=lambda request: Outcome.FAILED)

    with pytest.raises(RunError, match="8 prompts in a row gave nothing to train on.*failed"):
        run.start()


def test_a_lost_engine_ends_the_run_after_saving_what_was_trained(tmp_path):
    run = Run(tmp_path)
    lost = RunError("engine-0 died: killed")
    run.sampler = FakeSampler(run.policy, raises=lambda request: lost if request.group_id == "5" else None)

    with pytest.raises(RunError, match="engine-0 died"):
        run.start()
    assert [step for step, _ in run.policy.saved] == [2]
    (end,) = run.told(RunFinished)
    assert (end.outcome, end.step, end.error) == ("failed", 2, "engine-0 died: killed")
    run.ledger.check()


def test_an_engine_that_is_lost_while_the_trainer_works_does_not_wait_for_the_next_round(tmp_path):
    run = Run(tmp_path, max_staleness=1, policy=FakePolicy(step_s=1000.0))
    run.sampler = FakeSampler(
        run.policy, raises=lambda request: RunError("gone") if request.group_id == "3" else None
    )

    with pytest.raises(RunError, match="gone"):
        run.start()
    assert len(run.policy.trained) == 1, "the step it was in is finished, no other begins"


def test_a_step_that_is_not_finite_is_skipped_never_published_and_counted(tmp_path):
    run = Run(tmp_path, policy=FakePolicy(applied=lambda step: step != 2))
    run.start()

    assert [event.version for event in run.told(WeightsPublished)] == [1, 2, 3]
    assert run.told(StepFinished)[1].metrics["rollout/dropped/non_finite_step"] == 4
    assert run.ledger.as_dict()["rollouts"]["trained"] == 12


def test_three_steps_in_a_row_that_are_not_finite_end_the_run(tmp_path):
    run = Run(tmp_path, steps=9, policy=FakePolicy(applied=lambda step: step < 3))

    with pytest.raises(RunError, match="3 steps in a row.*version 2"):
        run.start()


def test_interrupt_finishes_the_step_saves_and_accounts_for_the_rest(tmp_path):
    run = Run(tmp_path, steps=100, max_staleness=1)
    run.stop_at_s = 10.5

    with pytest.raises(Interrupted, match="SIGINT"):
        run.start()
    (end,) = run.told(RunFinished)
    assert end.outcome == "interrupted"
    assert run.policy.saved[-1][0] == end.step == len(run.policy.trained)
    assert run.ledger.as_dict()["rollouts"]["dropped"]["interrupted"] > 0
    run.ledger.check()


def test_interrupt_during_the_first_evaluation_ends_at_once(tmp_path):
    run = Run(tmp_path, eval_prompts=2)
    run.sampler = FakeSampler(run.policy, seconds=lambda request: 500.0)
    run.stop_at_s = 1.0

    with pytest.raises(Interrupted):
        run.start()
    assert run.policy.saved == []


def test_evaluation_before_during_and_after_names_its_version(tmp_path):
    run = Run(tmp_path, eval_prompts=3, eval_every=2, eval_samples=2)
    run.start()

    assert [(event.step, event.version) for event in run.told(EvalFinished)] == [(0, 0), (2, 2), (4, 4)]
    assert {len(event.summaries) for event in run.told(EvalFinished)} == {6}
    seeds = [
        [r.seed for r in run.sampler.requests if r.rollout_id.startswith(f"eval-{n}-")] for n in (0, 2, 4)
    ]
    assert seeds[0] == seeds[1] == seeds[2], "what changes between evaluations is the policy alone"
    assert len(set(seeds[0])) == 6


def test_evaluation_off_policy_runs_beside_training_and_says_which_versions_it_is_of(tmp_path):
    def evaluated_in(seconds: float, **options):
        run = Run(
            tmp_path / str(seconds), policy=FakePolicy(step_s=1.0), steps=8, max_staleness=1,
            eval_prompts=2, eval_every=2, **options,
        )  # fmt: skip
        run.sampler = FakeSampler(
            run.policy, seconds=lambda request: seconds if request.rollout_id.startswith("eval") else 1.0
        )
        run.start()
        steps_s = sum(event.metrics["time/step_s"] for event in run.told(StepFinished))
        return steps_s, [(e.step, e.version, e.newest_version) for e in run.told(EvalFinished)]

    quick, long = evaluated_in(0.5), evaluated_in(2.6)

    assert quick[1] == [(0, 0, 0), (2, 2, 2), (4, 4, 4), (6, 6, 6), (8, 8, 8)]
    # what fell due after step 6 had to wait, and is of the version of then
    assert long[1] == [(0, 0, 0), (2, 2, 4), (4, 4, 7), (7, 7, 8), (8, 8, 8)]
    assert quick[0] == long[0] == 9, "training never waited"


def test_an_evaluation_that_begins_while_weights_are_published_is_named_after_the_step_before(tmp_path):
    run = Run(
        tmp_path, policy=FakePolicy(step_s=1.0, publish_s=1.0), steps=3, max_staleness=1, eval_prompts=1, eval_every=1
    )  # fmt: skip
    run.sampler = FakeSampler(
        run.policy, seconds=lambda request: 3.5 if request.rollout_id.startswith("eval") else 1.0
    )
    run.start()

    # due after steps 1 and 2; the second begins, late, in the update after step 3
    told = [(event.step, event.version, event.newest_version) for event in run.told(EvalFinished)]
    assert told == [(0, 0, 0), (1, 1, 2), (2, 2, 3), (3, 3, 3)]


def test_an_engine_that_is_lost_in_an_evaluation_beside_training_ends_the_run(tmp_path):
    run = Run(tmp_path, steps=50, max_staleness=1, eval_prompts=2, eval_every=2)
    lost = RunError("engine-0 died")
    run.sampler = FakeSampler(run.policy, raises=lambda r: lost if r.group_id.startswith("eval-2") else None)

    with pytest.raises(RunError, match="engine-0 died"):
        run.start()
    assert 2 <= len(run.policy.trained) < 5


def test_strictly_on_policy_an_engine_that_is_lost_beside_an_evaluation_ends_the_run_at_once(tmp_path):
    run = Run(tmp_path, eval_prompts=1, eval_every=1)
    run.sampler = FakeSampler(
        run.policy, seconds=lambda request: 1e6 if request.rollout_id.startswith("eval-1") else 1.0,
        raises=lambda request: RunError("gone") if request.group_id == "2" else None,
    )  # fmt: skip

    with pytest.raises(RunError, match="gone"):
        run.start()
    assert run.ended_s < 100


def test_interrupt_ends_an_evaluation_beside_training_at_once(tmp_path):
    run = Run(tmp_path, steps=100, max_staleness=1, eval_prompts=2, eval_every=1)
    run.sampler = FakeSampler(run.policy, seconds=lambda r: 1e6 if r.group_id.startswith("eval-1") else 1.0)
    run.stop_at_s = 20.0

    with pytest.raises(Interrupted):
        run.start()
    assert [event.step for event in run.told(EvalFinished)] == [0]


def test_checkpoints_are_saved_as_asked_and_at_the_end_once(tmp_path):
    run = Run(tmp_path, steps=4, save_every=2)
    run.start()

    assert [step for step, _ in run.policy.saved] == [2, 4]
    assert run.policy.saved[0][1]["version"] == 2


def test_what_was_trained_on_is_let_go_before_the_next_step(tmp_path):
    class Forgets(FakePolicy):
        async def step(self, shares):
            result = await super().step(shares)
            self.trained = []
            return result

    class Payload:
        pass

    class Watches(FakeSampler):
        alive, most_alive = weakref.WeakSet(), 0

        async def sample(self, request):
            summary = evolve(await super().sample(request), payload=Payload())
            self.alive.add(summary.payload)
            self.most_alive = max(self.most_alive, len(self.alive))
            return summary

    run = Run(tmp_path, policy=Forgets())
    run.sampler = Watches(run.policy)
    run.events = deque(maxlen=0)
    run.start()

    assert run.sampler.most_alive == 4, "of one step"


def test_the_run_ends_early_once_the_reward_stays_at_its_goal(tmp_path):
    run = Run(tmp_path, steps=50, stop_at_reward=0.9)
    run.sampler = FakeSampler(run.policy, reward=lambda request: 1.0 if int(request.group_id) >= 4 else 0.0)

    assert run.start() == "stopped_early"
    assert len(run.policy.trained) == 5


def test_data_that_ends_is_trained_to_the_last_prompt(tmp_path):
    run = Run(tmp_path, steps=10, num_tasks=5)

    assert run.start() == "done"
    assert [len(step) for step in run.trained_rollouts] == [4, 4, 2]


def test_seeds_differ_between_siblings_and_repeat_between_runs(tmp_path):
    first, second = Run(tmp_path / "a"), Run(tmp_path / "b")
    first.start()
    second.start()

    seeds = [request.seed for request in first.sampler.requests]
    assert len(set(seeds)) == len(seeds)
    assert seeds == [request.seed for request in second.sampler.requests]


def test_an_estimator_that_breaks_its_contract_is_named(tmp_path):
    class Wrong:
        def advantages(self, batch):
            return np.full(batch.rewards.shape, np.nan)

    with pytest.raises(RunError, match="estimator returned 4 advantages that are not finite"):
        Run(tmp_path, estimator=Wrong()).start()


def test_items_are_spread_over_ranks_and_share_one_window(tmp_path):
    run = Run(tmp_path, steps=1, policy=FakePolicy(num_ranks=2))
    run.start()

    (step,) = run.policy.trained
    assert [len(share.items) for share in step] == [2, 2]
    assert {share.window.num_tokens for share in step} == {8}


def test_every_rollout_is_told_to_observers(tmp_path):
    run = Run(tmp_path, steps=1)
    run.start()

    assert len(run.told(RolloutFinished)) == 4


def test_left_out_tokens_are_dispatched_and_dropped_with_their_reason_whatever_becomes_of_the_rollout(
    tmp_path,
):
    run = Run(tmp_path, needs_groups=False)
    run.sampler = LeavesOut(
        run.policy,
        outcome=lambda request: Outcome.FAILED if request.rollout_id.endswith("1") else Outcome.FINISHED,
    )

    assert run.start() == "done"
    assert run.ledger.as_dict()["tokens"] == {
        "dispatched": 16 * 5, "trained": 8 * 2, "pending": 0,
        "dropped": {"failed": 8 * 2, "orphan": 16, "side_call": 32},
    }  # fmt: skip
    assert {event.metrics["rollout/left_out/side_call"] for event in run.told(StepFinished)} == {2.0}


class Forgets(FakePolicy):
    """Of each second step, the tokens of one rollout are gone at the first try; so are some when it first saves."""

    def __init__(self, **options):
        super().__init__(**options)
        self.num_lost = 0
        self.saves = 0

    async def step(self, shares):
        if len(self.trained) % 2 == 1 and self.num_lost <= len(self.trained):
            self.num_lost += 2
            raise RolloutsLost([shares[0].items[0].payload.rollout_id])
        return await super().step(shares)

    async def save(self, step, state, payloads):
        self.saves += 1
        if payloads and self.saves == 1:
            raise RolloutsLost(list(payloads)[:1])
        return await super().save(step, state, payloads)


def test_groups_whose_tokens_are_lost_are_sampled_again_and_count_once_for_everyone(tmp_path):
    estimator = Counted()
    run = Run(
        tmp_path, policy=Forgets(step_s=3.0), estimator=estimator, max_staleness=2, save_every=2, steps=6
    )

    assert run.start() == "done"
    trained = [rollout for step in run.trained_rollouts for rollout in step]
    assert len(trained) == len(set(trained)) == 24
    assert estimator.seen == 24
    assert run.policy.num_lost == 6
    assert run.policy.saves > len(run.policy.saved)
    ledger = run.told(RunFinished)[0].ledger
    assert ledger["prompts"] == {"dispatched": 12, "trained": 12, "dropped": {}, "pending": 0}
    assert ledger["rollouts"]["dropped"]["lost"] == 2 * (3 + 1)
    assert ledger["rollouts"]["dispatched"] == 24 + 2 * (3 + 1)
    sampled = [event.summary.rollout_id for event in run.told(RolloutFinished)]
    assert len(sampled) == 24 + 2 * (3 + 1)
