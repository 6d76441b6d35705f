"""A rollout of a multi-turn environment: its turns, its rewards, and its close."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from molt_core.api.environment import Opening, Step
from molt_core.data.tasks import Task
from molt_core.errors import RunError
from molt_core.experience import Outcome, Rollout
from molt_core.experience.checks import violations
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.turn_rollout import run_turns
from molt_core.testing import FakeEngine, FakeGateway


def ask(content):
    return [{"role": "user", "content": content}]


class Scripted:
    """An environment that answers with a list of steps."""

    def __init__(self, steps, opening=None):
        self._steps = list(steps)
        self._opening = opening or ask("begin")
        self.replies = []
        self.num_closed = 0

    def reset(self, row):
        return self._opening

    def step(self, reply):
        self.replies.append(reply)
        step = self._steps.pop(0)
        return step() if callable(step) else step

    def close(self):
        self.num_closed += 1


def on(reward=0.0, **changes):
    return Step(reward=reward, messages=ask("on"), **changes)


def over(reward=0.0, **changes):
    return Step(reward=reward, done=True, **changes)


def rollout_of(
    environment, *, engine=None, max_length=4096, max_tokens=16, timeout_s=5.0, env_timeout_s=5.0
) -> Rollout:
    request = RolloutRequest(
        rollout_id="0-0", group_id="0", task=Task(task_id="t", row={}), temperature=1.0, max_tokens=max_tokens,
        seed=1, timeout_s=timeout_s,
    )  # fmt: skip
    engine = engine or FakeEngine(reply=lambda prompt: [*b"ok", 0])
    rollout = asyncio.run(
        run_turns(
            request, make_environment=lambda: environment, gateway=FakeGateway(max_length),
            generate=engine.generate, env_timeout_s=env_timeout_s,
        )
    )  # fmt: skip
    assert violations(rollout) == []
    assert environment.num_closed == 1, "closed once, whatever happened"
    return rollout


def test_turns_are_one_segment_whose_last_tokens_hold_their_rewards():
    environment = Scripted([on(0.25), on(info={"hits": 1}), over(0.5, info={"hits": 2})])
    rollout = rollout_of(environment)

    (segment,) = rollout.segments
    assert (rollout.outcome, rollout.reward) == (Outcome.FINISHED, 0.75)
    assert [turn.reward for turn in rollout.turn_rewards] == [0.25, 0.0, 0.5]
    assert [segment.token_ids[turn.token] for turn in rollout.turn_rewards] == [0, 0, 0], "end tokens"
    assert segment.num_sampled == 9
    assert rollout.info == {"samples": 3.0, "hits": 2.0}
    assert [reply.text for reply in environment.replies] == ["ok", "ok", "ok"]


def test_the_opening_may_bring_tools_and_methods_may_be_async():
    class Awaited(Scripted):
        async def reset(self, row):
            return Opening(messages=ask("begin"), tools=[{"name": "t"}])

        async def step(self, reply):
            return over(1)

    assert rollout_of(Awaited([])).reward == 1.0


@pytest.mark.parametrize("step", [over(1.0, truncated=True), Step(reward=1.0, truncated=True)])
def test_a_limit_of_the_environment_makes_it_truncated_and_it_trains(step):
    rollout = rollout_of(Scripted([step]))
    assert (rollout.outcome, rollout.reward) == (Outcome.TRUNCATED, 1.0)


def test_a_reply_cut_by_its_limit_is_still_shown_to_the_environment_and_ends_the_episode():
    environment = Scripted([on(0.5)])
    rollout = rollout_of(environment, max_tokens=2)

    assert environment.replies[0].truncated
    assert (rollout.outcome, rollout.reward) == (Outcome.TRUNCATED, 0.5)


def test_a_conversation_that_no_longer_fits_ends_with_the_rewards_so_far():
    rollout = rollout_of(Scripted([on(0.25), on(0.25), on(0.25)]), max_length=40)

    assert (rollout.outcome, rollout.reward) == (Outcome.TRUNCATED, 0.25)
    assert len(rollout.turn_rewards) == 1


def test_an_opening_that_does_not_fit_fails():
    rollout = rollout_of(Scripted([], opening=ask("x" * 100)), max_length=40)
    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "no_samples")


def raising():
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("step", "outcome", "reason", "said"),
    [
        (raising, Outcome.FAILED, "env_error", "KeyError: 'lost'"),
        (3.0, Outcome.FAILED, "env_error", "step() returned 3.0 of type float, wanted a Step"),
        (over("1"), Outcome.FAILED, "env_error", "'1' of type str"),
        (Step(messages=[*ask("on"), "x"]), Outcome.FAILED, "env_error", "wanted a list of messages"),
        (Step(), Outcome.FAILED, "env_error", "did not say that the task is done"),
        (over(None), Outcome.ABSTAINED, "abstained", "None"),
        (over(math.inf), Outcome.ABSTAINED, "reward_not_finite", "inf"),
        (lambda: time.sleep(0.5), Outcome.FAILED, "timeout", "Scripted.step within 0.1 s"),
    ],
)
def test_a_step_that_is_none_has_a_reason_and_the_tokens_are_kept(step, outcome, reason, said):
    rollout = rollout_of(Scripted([on(1.0), step]), env_timeout_s=0.1)

    assert (rollout.outcome, rollout.reason, rollout.reward) == (outcome, reason, None)
    assert said in rollout.detail
    assert sum(segment.num_sampled for segment in rollout.segments) == 6
    assert rollout.turn_rewards == ()


@pytest.mark.parametrize("opening", [[], "begin", [3]])
def test_reset_must_give_messages(opening):
    class Opens(Scripted):
        def reset(self, row):
            return opening

    assert rollout_of(Opens([])).reason == "env_error"


def test_a_close_that_fails_is_noted_and_masks_nothing():
    class Sticky(Scripted):
        def close(self):
            super().close()
            raise OSError("stuck")

    finished, failed = rollout_of(Sticky([over(1.0)])), rollout_of(Sticky([raising]))

    assert (finished.outcome, finished.reward) == (Outcome.FINISHED, 1.0)
    assert "OSError: stuck" in finished.detail
    assert failed.reason == "env_error"
    assert failed.detail.startswith("KeyError: 'lost'")
    assert "OSError: stuck" in failed.detail


def test_it_is_closed_when_reset_fails_and_when_time_runs_out():
    class Unset(Scripted):
        def reset(self, row):
            raise KeyError("lost")

    class Slow(Scripted):
        async def step(self, reply):
            await asyncio.sleep(60)

    assert rollout_of(Unset([])).reason == "env_error"
    late = rollout_of(Slow([]), timeout_s=0.1)
    assert late.reason == "timeout"
    assert "in step 1 of the environment" in late.detail


def test_a_lost_engine_is_raised_and_the_environment_closed():
    class Lost(FakeEngine):
        async def generate(self, request):
            raise RunError("engine-0 died")

    environment = Scripted([])
    with pytest.raises(RunError, match="engine-0 died"):
        rollout_of(environment, engine=Lost())
    assert environment.num_closed == 1
