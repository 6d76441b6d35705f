"""Agents and environments of several turns, each in a file, trained through the gateway by the real stack."""

from __future__ import annotations

import json

import pytest

from tests.road.conftest import EMBEDDED

pytestmark = pytest.mark.real

TURNS = '''
from molt_core.api.environment import Step


class Turns:
    """Up to three turns; each reply that comes to its own end is worth a third."""

    def tasks(self, split, seed):
        while True:
            yield {"turns": 3}

    def reset(self, row):
        self.left = row["turns"]
        return [{"role": "user", "content": "a word?"}]

    def step(self, reply):
        self.left -= 1
        more = [{"role": "user", "content": "more"}]
        return Step(messages=more, reward=(not reply.truncated) / 3, done=self.left == 0)

    def close(self): ...
'''
COMPACTS = '''
async def solve(task, session):
    """Two turns, then a new history of its own making: two segments."""
    history = list(task.messages)
    first = await session.chat(history)
    second = await session.chat([*history, first.message, {"role": "user", "content": "Go on."}])
    await session.chat([{"role": "user", "content": "So far: " + second.text[:20]}])
    return sum(letter.isdigit() for letter in second.text) / 8
'''


IN_FILES = (*EMBEDDED, "--max-length", "256", "--eval-prompts", "0")


def assert_sound(run, output, code):
    assert code == 0, output
    for unit in ("prompts", "rollouts", "tokens"):
        account = run.ledger()[unit]
        assert account["pending"] == 0
        assert account["dispatched"] == account["trained"] + sum(account["dropped"].values())
    assert max(step["mismatch/abs_diff"] for step in run.steps()) < 1e-3, (
        "what is trained is what was sampled"
    )
    assert run.left_behind() == []


def test_an_environment_of_several_turns_trains_and_its_reward_rises(start, tmp_path):
    file = tmp_path / "turns.py"
    file.write_text(TURNS)
    run = start(
        *IN_FILES, "--env", f"{file}:Turns", "--estimator", "grpo", "--group-size", "8", "--prompts-per-step", "4",
        "--max-tokens", "16", "--steps", "60", "--stop-at-reward", "0.9",
    )  # fmt: skip
    code, output = run.wait()

    assert_sound(run, output, code)
    rewards = [step["reward/mean"] for step in run.steps()]
    assert rewards[0] < 0.2
    assert min(rewards[-3:]) >= 0.9
    assert {step["rollout/segments_mean"] for step in run.steps()} == {1.0}, "turns extend one segment"
    assert run.steps()[-1]["env/samples"] > 2.5


def test_an_agent_that_compacts_its_history_has_several_segments_and_counts_once(start, tmp_path):
    file = tmp_path / "compacts.py"
    file.write_text(COMPACTS)
    run = start(*IN_FILES, "--steps", "3", "--agent", f"{file}:solve", "--data", "examples/tiny.jsonl")
    code, output = run.wait()

    assert_sound(run, output, code)
    assert run.ledger()["rollouts"]["trained"] == 3 * 8
    assert {step["rollout/segments_mean"] for step in run.steps()} == {2.0}
    sampled = sum(step["trainer/sampled_tokens"] for step in run.steps())
    assert run.ledger()["tokens"]["trained"] == sampled
    parts = json.loads((run.folder / "plan.json").read_text())["parts"]
    assert ([part["name"] for part in parts["agents"]], "envs" in parts) == (["solve"], False)
