"""The loop is killed at any moment and resumed from its last checkpoint: nothing is lost, nothing trains twice."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from molt_core.api.events import EvalFinished, StepFinished
from molt_core.api.run_options import RunOptions
from molt_core.errors import ConfigError, RunError
from molt_core.experience import Outcome
from molt_core.loop.controller import Controller
from molt_core.loop.evaluate import eval_tasks
from molt_core.loop.parts import LoopParts, Resumed
from molt_core.loop.state import LoopState
from molt_core.loop.stop import StopSignal
from molt_core.report.ledger import Ledger
from molt_core.testing import FakePolicy, FakeSampler, fake_tasks, run_virtual
from tests.loop.counted import Counted


class Disk:
    """What outlives a process: the last committed checkpoint, and the steps that were trained up to it."""

    def __init__(self):
        self.step, self.state, self.payloads = 0, None, {}
        self.steps, self.evals = [], []


class Policy(FakePolicy):
    """Commits to the disk whatever has been trained by then."""

    def __init__(self, disk: Disk, **seconds) -> None:
        super().__init__(**seconds)
        self._disk = disk
        self.steps = list(disk.steps)

    async def step(self, shares):
        result = await super().step(shares)
        self.steps.append([item.payload.rollout_id for share in shares for item in share.items])
        return result

    async def save(self, step, state, payloads):
        self._trained = list(self.steps)
        return await super().save(step, state, payloads)

    async def _commit(self, step, state, payloads):
        trained = self._trained
        folder = await super()._commit(step, state, payloads)
        self._disk.step, self._disk.state = step, json.dumps(state)
        self._disk.payloads, self._disk.steps = payloads, trained
        return folder


class Kill(Exception):
    pass


def live(
    disk: Disk, schedule: random.Random, options: dict, *, num_tasks=None, kill_s: float | None, failing=0.0,
    stop_s=None, policy_class=Policy,
):  # fmt: skip
    """One process: from the disk on, until it is done or killed. Returns its ledger and events."""
    run = RunOptions(model="m", **options)
    policy = policy_class(
        disk, step_s=schedule.choice([0.0, 1.0, 4.0]), publish_s=schedule.choice([0.0, 0.5]),
        save_s=schedule.choice([0.0, 2.0]),
    )  # fmt: skip

    def outcome(request):
        # depends on the rollout alone, as with a fixed policy and fixed seeds
        draw = random.Random(f"{request.rollout_id}/{request.seed}").random()
        return Outcome.FAILED if draw < failing else Outcome.FINISHED

    sampler = FakeSampler(
        policy, seconds=lambda request: schedule.choice([0.1, 1.0, 7.0]), outcome=outcome,
        reward=lambda request: float(len(request.task.task_id)),
    )  # fmt: skip
    ledger, events = Ledger(), []

    async def main():
        resumed, tasks = None, fake_tasks(num_tasks)
        if disk.state is not None:
            state = LoopState.from_json(json.loads(disk.state))
            again = tasks.restore(state.tasks, state.tasks_open)
            state = state.resumed(disk.payloads, asyncio.get_running_loop().time())
            resumed = Resumed(state=state, tasks=again)
        stop = StopSignal()
        if stop_s is not None:
            asyncio.get_running_loop().call_later(stop_s, stop.request, "SIGTERM")
        parts = LoopParts(
            sampler=sampler, policy=policy, estimator=Counted(), needs_groups=True, tasks=tasks,
            eval_tasks=eval_tasks(fake_tasks(), run.eval_prompts), eval_name="fake", max_tokens=8, ledger=ledger,
            notify=events.append, stop=stop, resumed=resumed,
        )  # fmt: skip
        controller = asyncio.create_task(Controller(run, parts).run())
        done, _ = await asyncio.wait({controller}, timeout=kill_s)
        if not done:
            # nothing that the loop does while it unwinds is looked at: the disk is as it was
            kept = dict(vars(disk))
            controller.cancel()
            await asyncio.gather(controller, return_exceptions=True)
            vars(disk).update(kept)
            raise Kill
        return controller.result()

    try:
        outcome_of_run = run_virtual(main())
    except Kill:
        outcome_of_run = "killed"
    return outcome_of_run, ledger, events


def task_number(rollout_id: str) -> int:
    return int(rollout_id.partition("-")[0])


SHAPES = {
    "prompts_per_step": st.integers(1, 4), "group_size": st.integers(1, 3), "max_staleness": st.integers(0, 3),
    "save_every": st.integers(1, 3), "eval_every": st.integers(0, 2), "partial": st.booleans(),
}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    options=st.fixed_dictionaries(SHAPES), schedule=st.randoms(use_true_random=False),
    kills=st.lists(st.floats(0.0, 40.0), max_size=5), failing=st.sampled_from([0.0, 0.1]), length=st.integers(1, 9),
)  # fmt: skip
def test_killed_anywhere_every_prompt_is_trained_or_dropped_exactly_once(
    options, schedule, kills, failing, length
):
    num_tasks = length * options["prompts_per_step"]
    options |= {"steps": 100, "eval_prompts": 2, "incomplete_groups": "drop"}
    if options["group_size"] == 1:
        options |= {"group_size": 2}
    disk = Disk()
    staleness = []
    for kill_s in [*kills, None]:
        outcome, ledger, events = live(
            disk, schedule, options, num_tasks=num_tasks, kill_s=kill_s, failing=failing
        )
        staleness += [event.metrics["staleness/max"] for event in events if isinstance(event, StepFinished)]
        if outcome == "done":
            break

    assert outcome == "done"
    trained = [rollout for step in disk.steps for rollout in step]
    assert len(trained) == len(set(trained)), "none twice"
    size = options["group_size"]
    lost = {
        number
        for number in range(num_tasks)
        for member in range(size)
        if random.Random(f"{number}-{member}/{seed_of(number, member, size)}").random() < failing
    }
    assert {task_number(rollout) for rollout in trained} == set(range(num_tasks)) - lost, "none lost"
    assert len(trained) == (num_tasks - len(lost)) * size
    books = ledger.as_dict()
    assert books["prompts"]["dispatched"] == num_tasks
    assert books["prompts"]["trained"] == num_tasks - len(lost)
    assert books["rollouts"]["dispatched"] == num_tasks * size
    assert books["tokens"]["trained"] == 2 * len(trained)
    assert {books[unit]["pending"] for unit in books} == {0}
    assert all(value <= options["max_staleness"] for value in staleness)


def seed_of(number: int, member: int, size: int) -> int:
    return (number * size + member) % 2**31


@settings(max_examples=50, deadline=None)
@given(
    schedule=st.randoms(use_true_random=False),
    kills=st.lists(st.floats(0.0, 30.0), max_size=4),
    prompts=st.integers(1, 4),
)
def test_in_deterministic_mode_the_steps_are_those_of_the_undisturbed_run(schedule, kills, prompts):
    options = {
        "prompts_per_step": prompts, "group_size": 2, "steps": 6, "save_every": 2, "eval_prompts": 0,
        "deterministic": True,
    }  # fmt: skip
    whole, broken = Disk(), Disk()
    live(whole, schedule, options, kill_s=None, failing=0.2)
    for kill_s in [*kills, None]:
        outcome, *_ = live(broken, schedule, options, kill_s=kill_s, failing=0.2)
        if outcome == "done":
            break
    assert broken.steps == whole.steps
    assert json.loads(broken.state)["parts"] == json.loads(whole.state)["parts"]


def test_an_interrupted_run_goes_on_with_what_was_in_flight_and_counts_it_once():
    options = {"prompts_per_step": 2, "group_size": 2, "max_staleness": 2, "steps": 100, "eval_prompts": 0}
    disk = Disk()
    with pytest.raises(Exception, match="SIGTERM"):
        live(disk, random.Random(1), options, num_tasks=20, kill_s=None, stop_s=12.0)
    saved = json.loads(disk.state)
    assert saved["outcome"] == "interrupted"
    assert saved["ledger"]["prompts"]["pending"] > 0, "what was in flight is pending, not dropped"
    outcome, ledger, _ = live(disk, random.Random(2), options, num_tasks=20, kill_s=None)

    assert outcome == "done"
    assert sorted({task_number(each) for step in disk.steps for each in step}) == list(range(20))
    assert ledger.as_dict()["prompts"] == {"dispatched": 20, "trained": 20, "dropped": {}, "pending": 0}


def test_a_step_that_failed_gives_its_groups_back_to_the_resumed_run():
    options = {"prompts_per_step": 2, "group_size": 2, "steps": 4, "eval_prompts": 0}

    class Breaks(Policy):
        async def step(self, shares):
            if len(self.steps) == 2:
                raise RunError("no answer of trainer-0")
            return await super().step(shares)

    disk = Disk()
    with pytest.raises(RunError, match="no answer of trainer-0"):
        live(disk, random.Random(1), options, kill_s=None, policy_class=Breaks)
    assert disk.step == 2
    assert live(disk, random.Random(1), options, kill_s=None)[0] == "done"
    assert [sorted({task_number(each) for each in step}) for step in disk.steps] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]


def test_a_done_run_is_continued_with_more_steps_and_evaluates_again_only_at_its_new_end():
    options = {"prompts_per_step": 1, "group_size": 2, "eval_prompts": 2}
    disk = Disk()
    live(disk, random.Random(1), options | {"steps": 2}, kill_s=None)
    _, _, events = live(disk, random.Random(1), options | {"steps": 4}, kill_s=None)

    assert [event.step for event in events if isinstance(event, StepFinished)] == [3, 4]
    assert [event.step for event in events if isinstance(event, EvalFinished)] == [4]


def test_engines_get_the_checkpoints_weights_under_their_version_before_anything_is_sampled():
    options = {"prompts_per_step": 1, "group_size": 2, "eval_prompts": 0}
    disk = Disk()
    live(disk, random.Random(1), options | {"steps": 3}, kill_s=None)
    _, _, events = live(disk, random.Random(1), options | {"steps": 5}, kill_s=None)

    told = [type(event).__name__ for event in events]
    assert told.index("WeightsPublished") < told.index("RolloutFinished")
    assert [event.version for event in events if type(event).__name__ == "WeightsPublished"] == [3, 4, 5]
    assert {event.metrics["staleness/max"] for event in events if isinstance(event, StepFinished)} == {0}


def test_a_state_of_another_schema_is_refused():
    with pytest.raises(ConfigError, match="schema 0, this molt-core reads 2"):
        LoopState.from_json({"schema": 0})
    with pytest.raises(ConfigError, match="no state of a loop"):
        LoopState.from_json({"schema": 2, "step": 3})


def test_training_goes_on_while_a_checkpoint_is_made_durable_and_the_next_waits_for_it():
    told = []

    class Slow(Policy):
        async def step(self, shares):
            told.append(f"train {len(self.steps) + 1}")
            return await super().step(shares)

        async def _commit(self, step, state, payloads):
            await asyncio.sleep(50)
            told.append(f"commit {step}")
            return await super()._commit(step, state, payloads)

    options = {"prompts_per_step": 1, "group_size": 2, "steps": 6, "eval_prompts": 0, "save_every": 2}
    live(Disk(), random.Random(1), options, kill_s=None, policy_class=Slow)

    assert told == [
        "train 1", "train 2", "train 3", "train 4", "commit 2", "train 5", "train 6", "commit 4", "commit 6",
    ]  # fmt: skip


def test_a_checkpoint_that_cannot_be_made_durable_ends_the_run():
    class Full(Policy):
        async def _commit(self, step, state, payloads):
            raise RunError("no space left")

    disk = Disk()
    options = {"prompts_per_step": 1, "group_size": 2, "steps": 90, "eval_prompts": 0, "save_every": 2}
    with pytest.raises(RunError, match="no space left"):
        live(disk, random.Random(1), options, kill_s=None, policy_class=Full)
    assert disk.state is None


def test_every_evaluated_version_is_saved_when_the_best_is_to_be_kept_and_its_score_outlives_a_kill():
    options = {
        "prompts_per_step": 1, "group_size": 2, "steps": 7, "eval_prompts": 2, "eval_every": 3,
        "keep_best": "eval/fake/reward_mean",
    }  # fmt: skip
    disk, saved = Disk(), []

    class Noted(Policy):
        async def _commit(self, step, state, payloads):
            saved.append((step, state["version"], set(state["scores"])))
            return await super()._commit(step, state, payloads)

    live(disk, random.Random(1), options, kill_s=None, policy_class=Noted)
    assert saved == [(3, 3, {"0", "3"}), (6, 6, {"0", "3", "6"}), (7, 7, {"0", "3", "6", "7"})]
    live(disk, random.Random(1), options | {"steps": 8}, kill_s=None, policy_class=Noted)
    assert saved[-1] == (8, 8, {"0", "3", "6", "7", "8"})


def test_a_metric_that_evaluation_does_not_have_ends_the_run_before_training():
    options = {
        "prompts_per_step": 1,
        "group_size": 2,
        "steps": 7,
        "eval_prompts": 2,
        "keep_best": "eval/fake/mean",
    }
    with pytest.raises(RunError, match="keep_best is 'eval/fake/mean', but evaluation has eval/fake/"):
        live(Disk(), random.Random(1), options, kill_s=None)


def test_a_checkpoint_that_could_not_be_written_does_not_cost_the_last_one():
    options = {"prompts_per_step": 1, "group_size": 2, "steps": 3, "save_every": 1, "eval_prompts": 0}

    class FullFor(Policy):
        async def save(self, step, state, payloads):
            if step == 2:
                return asyncio.create_task(self._refuse())
            return await super().save(step, state, payloads)

        async def _refuse(self):
            raise RunError("no space left on device")

    disk = Disk()
    with pytest.raises(RunError, match="no space left"):
        live(disk, random.Random(1), options, kill_s=None, policy_class=FullFor)
    assert disk.step == 3


def test_steps_that_are_not_finite_are_counted_across_a_resume():
    options = {"prompts_per_step": 1, "group_size": 2, "steps": 9, "eval_prompts": 0}

    class Unsound(Policy):
        async def step(self, shares):
            return evolve(await super().step(shares), applied=len(self.steps) < 2)

    disk = Disk()
    for num_skipped in (3, 4):
        with pytest.raises(RunError, match=f"{num_skipped} steps in a row"):
            live(disk, random.Random(1), options, kill_s=None, policy_class=Unsound)
