"""The tool task that learns on a CPU: what its turns pay, and that the reward rises in a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from molt_core.api import python_file
from molt_core.api.environment import Reply, Step
from tests.road.conftest import Run

ROOT = Path(__file__).parents[2]


def played(*replies: str) -> list[Step]:
    """Steps of replies; one that ends in `…` was cut off."""
    environment = python_file.load(ROOT / "examples" / "tiny_tool.py", "AddingMachine")()
    environment.reset({"prompt": "What is 1+2?"})
    return [
        environment.step(Reply(text=text.removesuffix("…"), truncated=text.endswith("…"), num_tokens=8))
        for text in replies
    ]


def test_a_call_is_answered_by_the_machine_and_the_answer_ends_it() -> None:
    call, answer = played("12", "3")
    assert (call.reward, call.done, call.messages[0]["content"]) == (0.5, False, "= 3")
    assert (answer.reward, answer.done) == (0.5, True)


@pytest.mark.parametrize(
    ("text", "reward"), [("1a", 0.375), ("aa", 0.25), ("", 0.0), ("11…", 0.25), ("aa…", 0.0)]
)
def test_every_step_towards_a_call_pays_a_little_and_one_that_was_cut_off_is_none(
    text: str, reward: float
) -> None:
    (step,) = played(text)
    assert step.reward == reward
    assert step.done == text.endswith("…")


@pytest.mark.real
def test_the_reward_of_the_tool_task_rises_in_a_whole_run(tmp_path: Path) -> None:
    run = Run(
        tmp_path, "examples/tiny_tool.toml", "--executor", "local", "--engine", "transformers", forked=True
    )
    try:
        code, output = run.wait()
        assert code == 0, output
        steps = run.steps()
        assert sum(step["reward/mean"] for step in steps[:3]) / 3 < 0.1
        assert min(step["reward/mean"] for step in steps[-3:]) >= 0.9
        assert {step["rollout/segments_mean"] for step in steps} == {1.0}, "turns extend one segment"
        assert run.left_behind() == []
    finally:
        run.end()
