"""A rollout of an agent: whatever it does, its tokens are kept and its end has a reason."""

from __future__ import annotations

import asyncio
import math
import threading
import time

import pytest

from molt_core.api.agent import Result
from molt_core.api.environment import Score
from molt_core.data.tasks import Task
from molt_core.errors import RunError
from molt_core.experience import Outcome, Rollout
from molt_core.experience.checks import violations
from molt_core.loop import session_rollout
from molt_core.loop.agent_rollout import run_agent
from molt_core.loop.ports import RolloutRequest
from molt_core.testing import FakeEngine, FakeGateway


def ask(content):
    return [{"role": "user", "content": content}]


def says(text):
    return FakeEngine(reply=lambda prompt: [*map(ord, text), 0])


class Grader:
    """An environment that grades with a function."""

    def __init__(self, score):
        self.replies = []
        self._score = score

    def prompt(self, row):
        return ask(row["question"])

    def score(self, row, reply):
        self.replies.append(reply)
        return self._score(reply)


def rollout_of(
    run,
    *,
    environment=None,
    engine=None,
    gateway=None,
    row=None,
    timeout_s=5.0,
    env_timeout_s=5.0,
    top_logprobs=0,
) -> Rollout:
    class Solver:
        pass

    if isinstance(run, type):
        Solver = run
    else:
        Solver.run = staticmethod(run)
    request = RolloutRequest(
        rollout_id="0-0", group_id="0", task=Task(task_id="t", row=row or {"question": "hi"}), temperature=1.0,
        max_tokens=16, seed=1, timeout_s=timeout_s, top_logprobs=top_logprobs,
    )  # fmt: skip
    rollout = asyncio.run(
        run_agent(
            request, make_agent=Solver, environment=environment, gateway=gateway or FakeGateway(),
            generate=(engine or says("yes")).generate, env_timeout_s=env_timeout_s,
        )
    )  # fmt: skip
    assert violations(rollout) == []
    return rollout


async def one_call(task, session):
    await session.chat(ask("go"))


def then(value):
    async def run(task, session):
        await session.chat(ask("go"))
        return value

    return run


@pytest.mark.parametrize("returned", [1, 1.0, True, Result(reward=1.0)])
def test_a_number_of_any_kind_is_the_reward(returned):
    rollout = rollout_of(then(returned))

    (segment,) = rollout.segments
    assert (rollout.outcome, rollout.reward, rollout.reply_text) == (Outcome.FINISHED, 1.0, "yes")
    assert segment.token_ids[segment.sampled].tolist() == [*b"yes", 0]


@pytest.mark.parametrize(
    ("returned", "outcome", "reason", "said"),
    [
        (None, Outcome.ABSTAINED, "abstained", "the agent returned None"),
        (Result(), Outcome.ABSTAINED, "abstained", "the agent returned None"),
        (math.nan, Outcome.ABSTAINED, "reward_not_finite", "nan"),
        ("good", Outcome.FAILED, "agent_error", "the agent returned 'good' of type str"),
        (Result(reward="1"), Outcome.FAILED, "agent_error", "'1' of type str"),
        (Result(reward=1, text=b"x"), Outcome.FAILED, "agent_error", "b'x', wanted a string"),
        (Result(reward=1, info={"n": "many"}), Outcome.FAILED, "agent_error", "in info 'n' returned 'many'"),
    ],
)
def test_what_is_no_reward_has_a_reason_and_keeps_its_tokens(returned, outcome, reason, said):
    rollout = rollout_of(then(returned))

    assert (rollout.outcome, rollout.reason, rollout.reward) == (outcome, reason, None)
    assert said in rollout.detail
    assert sum(segment.num_sampled for segment in rollout.segments) == 4


def test_an_environment_grades_what_has_no_reward():
    environment = Grader(lambda reply: Score(reward=0.5, info={"length": len(reply.text)}))
    rollout = rollout_of(then(None), environment=environment)

    (reply,) = environment.replies
    assert (rollout.reward, rollout.info) == (0.5, {"samples": 1.0, "length": 3.0})
    assert (reply.text, reply.num_tokens, reply.truncated) == ("yes", 4, False)


def test_an_environment_is_not_asked_when_the_agent_graded_itself():
    environment = Grader(lambda reply: 0.0)
    assert rollout_of(then(Result(reward=0.75, info={"turns": 3})), environment=environment).reward == 0.75
    assert environment.replies == []


def test_text_and_workspace_of_the_result_go_to_the_grader(tmp_path):
    (tmp_path / "out").write_text("42")
    environment = Grader(lambda reply: float((reply.workspace / "out").read_text() == reply.text))
    rollout = rollout_of(then(Result(text="42", workspace=tmp_path)), environment=environment)

    assert (rollout.reward, rollout.reply_text) == (1.0, "42")


@pytest.mark.parametrize(("returned", "reason"), [(Result(text="4"), ""), ("wrong", "agent_error")])
def test_an_agent_is_closed_after_grading_and_a_failure_to_close_is_only_noted(tmp_path, returned, reason):
    order = []

    class Solver:
        async def run(self, task, session):
            await session.chat(ask("go"))
            assert session.num_samples == 1
            return returned

        def close(self):
            order.append("closed")
            raise OSError("busy")

    environment = Grader(lambda reply: order.append("graded") or 1.0)
    rollout = rollout_of(Solver, environment=environment)

    assert order == (["closed"] if reason else ["graded", "closed"])
    assert rollout.reason == reason
    assert "close() of the agent failed: OSError: busy" in rollout.detail


def test_a_grader_may_ask_the_engines_and_that_is_not_recorded():
    async def judged(reply):
        return float(await reply.judge("Is it good?") == "yes")

    rollout = rollout_of(then(None), environment=Grader(judged))

    assert rollout.reward == 1.0
    assert sum(segment.num_sampled for segment in rollout.segments) == 4


def test_the_task_brings_messages_tools_and_columns():
    seen = []

    async def run(task, session):
        seen.append(task)
        await session.chat(task.messages)
        return 1

    tool = {"type": "function", "function": {"name": "add"}}
    rollout_of(run, row={"question": "hi", "answer": 3, "tools": [tool]}, environment=Grader(lambda reply: 1))
    rollout_of(run, row={"messages": ask([{"type": "text", "text": "parts"}]), "tools": '[{"name": "x"}]'})
    graded, own = seen

    assert (graded.prompt, graded["answer"], graded.tools, graded.timeout_s) == ("hi", 3, (tool,), 5.0)
    assert (own.prompt, own.tools) == ("parts", ({"name": "x"},))


def test_a_row_without_a_prompt_gives_no_messages_and_a_broken_one_fails():
    async def run(task, session):
        await session.chat(ask("go"))
        return len(task.messages)

    assert rollout_of(run, row={"seed": 3}).reward == 0
    assert rollout_of(run, row={"prompt": 3}).reason == "prompt_error"
    assert rollout_of(run, row={"tools": "{"}).reason == "prompt_error"


def test_a_blocking_agent_runs_beside_the_loop():
    def run(task, session):
        assert threading.current_thread() is not threading.main_thread()
        return 1

    assert rollout_of(run).reason == "no_samples"


@pytest.mark.parametrize(
    ("left_out", "said"), [("", "was not asked"), ("side_call", "4 tokens are left out")]
)
def test_a_rollout_without_a_token_to_train_on_is_no_success(left_out, said):
    async def idle(task, session):
        return 1.0

    gateway = FakeGateway(left_out=lambda sample: left_out)
    rollout = rollout_of(then(1.0) if left_out else idle, gateway=gateway)

    assert (rollout.outcome, rollout.reason, rollout.reward) == (Outcome.FAILED, "no_samples", None)
    assert said in rollout.detail
    assert sum(part.segment.num_sampled for part in rollout.left_out) == (4 if left_out else 0)


def test_an_agent_that_raises_fails_with_the_place_and_keeps_its_tokens():
    async def run(task, session):
        await session.chat(ask("go"))
        return {}["missing"]

    rollout = rollout_of(run)

    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "agent_error")
    assert f"KeyError: 'missing' ({__file__}:" in rollout.detail
    assert len(rollout.segments) == 1


def test_an_agent_that_hangs_is_timed_out_named_and_its_session_closed():
    async def run(task, session):
        await session.chat(ask("go"))
        await asyncio.sleep(60)

    gateway = FakeGateway()
    rollout = rollout_of(run, gateway=gateway, timeout_s=2.0)

    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "timeout")
    assert "running the agent" in rollout.detail
    assert len(rollout.segments) == 1
    assert gateway.sessions[0].closed


def test_an_agent_that_will_not_end_is_left_behind(monkeypatch):
    monkeypatch.setattr(session_rollout, "UNWIND_S", 0.1)

    async def run(task, session):
        while not session.closed:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.3)

    assert rollout_of(run, timeout_s=0.1).reason == "timeout"


def test_a_lost_engine_is_raised_at_once_even_if_the_agent_looks_away():
    class Lost(FakeEngine):
        async def generate(self, request):
            raise RunError("engine-0 died")

    async def run(task, session):
        try:
            await session.chat(ask("go"))
        except RunError:
            await asyncio.sleep(60)

    gateway = FakeGateway()
    with pytest.raises(RunError, match="engine-0 died"):
        rollout_of(run, engine=Lost(), gateway=gateway)
    assert gateway.sessions[0].closed


def test_a_grader_that_hangs_is_timed_out_by_its_own_deadline():
    rollout = rollout_of(then(None), environment=Grader(lambda reply: time.sleep(3)), env_timeout_s=1.0)

    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "timeout")
    assert "Grader.score within 1 s (env_timeout_s)" in rollout.detail


@pytest.mark.parametrize("result", [Result(reward=1.0, truncated=True), 1.0])
def test_a_limit_that_ended_it_makes_it_truncated(result):
    engine = says("no end of words" * 9) if result == 1.0 else says("yes")
    assert rollout_of(then(result), engine=engine).outcome is Outcome.TRUNCATED


@pytest.mark.parametrize("number", [0, 3])
def test_likely_tokens_come_with_every_segment_where_they_are_wanted(number):
    async def run(task, session):
        first = await session.chat(ask("one"))
        await session.chat([*ask("one"), first.message, *ask("two")])
        await session.chat(ask("summary"))
        return 1.0

    shapes = [
        None if segment.top_ids is None else segment.top_ids.shape
        for segment in rollout_of(run, top_logprobs=number).segments
    ]
    assert shapes == ([(8, 3), (4, 3)] if number else [None, None])


def test_an_agent_that_rewrites_its_history_yields_segments_with_one_reward():
    async def run(task, session):
        first = await session.chat(ask("one"))
        await session.chat([*ask("one"), first.message, *ask("two")])
        await session.chat(ask("summary"))
        return 1.0

    rollout = rollout_of(run)

    assert [segment.num_sampled for segment in rollout.segments] == [8, 4]
    assert rollout.reward == 1.0
