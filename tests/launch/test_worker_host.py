"""The worker builds what the plan names, runs it in sessions, and ends what it started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from attrs import evolve

from molt_core.data.tasks import Task
from molt_core.experience import Outcome, RolloutSummary
from molt_core.experience.codec import decode
from molt_core.launch.actors import worker_requests
from molt_core.launch.local_executor import InProcessStore
from molt_core.launch.prepared_model import PreparedModel
from molt_core.launch.wire import eval_name, task_sources
from molt_core.launch.worker_host import WorkerHost
from molt_core.loop.ports import RolloutRequest
from molt_core.plan.check import examine
from molt_core.plan.plan import Plan, freeze
from molt_core.plugins.scan import scan
from molt_core.testing import FakeEngine

SOURCE = """
from molt_core.api.environment import Step

async def solve(task, session):
    first = await session.chat(task.messages)
    await session.chat([{"role": "user", "content": "again"}])
    return float(first.text == task["answer"])

class Solver:
    def __init__(self):
        self.num_runs = 0

    async def run(self, task, session):
        self.num_runs += 1
        await session.chat(task.messages)
        return self.num_runs

class Guess:
    def __init__(self, options):
        self._open = options

    def tasks(self, split, seed):
        yield from ({"secret": f"{split}{number}"} for number in range(3))

    def reset(self, row):
        return [{"role": "user", "content": row["secret"]}]

    def step(self, reply):
        return Step(reward=0.5, done=True)

    def close(self): ...
"""


class Handle:
    def __init__(self):
        self._engine = FakeEngine(reply=lambda prompt: [*b"yes", 0])

    async def call(self, method, *args):
        return await getattr(self._engine, method)(*args)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def plan_with(*flags: str) -> Plan:
    plan = freeze(examine(["--model", "tiny", "--max-tokens", "8", *flags], scan()).view)
    gateway = evolve(plan.one("gateways"), factory="molt_core.testing.fake_gateway:FakeGateway.from_plan")
    return evolve(plan, parts={**plan.parts, "gateways": (gateway,)})


def sampled(plan: Plan, row: dict[str, str], num_rollouts: int = 1) -> list[RolloutSummary]:
    async def scenario() -> list[RolloutSummary]:
        model = PreparedModel(folder=Path("m"), max_length=256, end_token_ids=(0,))
        (request,) = worker_requests(plan, model)
        worker = WorkerHost(InProcessStore(), *request.args)
        await worker.start()
        assert worker._gateway.running
        await worker.connect(0, Handle())
        summaries = [
            await worker.sample(
                RolloutRequest(
                    rollout_id=f"0-{number}", group_id="0", task=Task(task_id="t", row=row), temperature=1.0,
                    max_tokens=8, seed=1, timeout_s=5.0,
                ),
                0,
            )
            for number in range(num_rollouts)
        ]  # fmt: skip
        await worker.stop()
        assert not worker._gateway.running
        return summaries

    return asyncio.run(scenario())


def test_a_function_in_a_file_is_an_agent(file):
    plan = plan_with("--data", "rows.jsonl", "--agent", f"{file}:solve")
    (summary,) = sampled(plan, {"prompt": "hi", "answer": "yes"})

    assert (summary.outcome, summary.reward, summary.segment_sampled) == (Outcome.FINISHED, 1.0, (4, 4))
    assert decode(summary.payload).segments[0].num_sampled == 4


def test_a_class_without_options_is_made_anew_for_every_rollout(file):
    plan = plan_with("--data", "rows.jsonl", "--agent", f"{file}:Solver")
    assert [summary.reward for summary in sampled(plan, {"prompt": "hi"}, 2)] == [1.0, 1.0]


def test_an_environment_grades_what_an_agent_does(file):
    plan = plan_with("--data", "arithmetic", "--agent", f"{file}:Solver")
    (summary,) = sampled(plan, {"a": 1, "operation": "+", "b": 2, "answer": 3})

    assert summary.prompt_text.startswith("Calculate.")
    assert summary.reward == 1.0


def test_an_environment_of_several_turns_makes_tasks_and_is_reset_for_each(file):
    plan = plan_with("--env", f"{file}:Guess", "--eval-prompts", "2")
    tasks = task_sources(plan)
    train, held_out = tasks.train, tasks.held_out
    (summary,) = sampled(plan, train.next().row)

    assert [task.row["secret"] for task in held_out] == ["eval0", "eval1"]
    assert (summary.prompt_text, summary.reward, eval_name(plan)) == ("train0", 0.5, "Guess")
