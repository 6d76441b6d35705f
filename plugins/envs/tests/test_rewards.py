"""Several rewards become one: weights, abstention, numbers for metrics, and what a function is given."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_envs.reward_option import RewardOptions
from molt_plugin_envs.rewards import Rewards, weighted

from molt_core.api.environment import Reply, Score

FUNCTIONS = """
from molt_core.api.environment import Score

def short(text, limit=3):
    return len(text) <= limit

async def asked(text, judge, answer):
    return float(await judge(f"Is {text} right for {answer}?"))

def counted(text, workspace, reply):
    return Score(reward=reply.num_tokens, info={"files": len(list(workspace.iterdir()))})

def unsure(text):
    return None

def everything(text, **columns):
    return float(len(columns))

def wrong(text):
    return "1"
"""


async def judge(question: str) -> str:
    return "0.5" if question == "Is 7 right for 7?" else "0"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FUNCTIONS)
    return path


def grade(
    *rewards: str, weights: tuple[float, ...] = (), row: Mapping[str, Any] | None = None, **reply: Any
) -> Any:
    said = Reply(**{"text": "7", "truncated": False, "num_tokens": 4, "judge": judge, **reply})
    graded = Rewards(RewardOptions(reward=rewards, reward_weights=weights)).grade(
        said.text, row or {"answer": 7}, said
    )

    async def wait(value: Any) -> Any:
        return await value

    return asyncio.run(wait(graded)) if isawaitable(graded) else graded


def test_rewards_add_up_with_their_weights_and_each_is_told_by_name(file: Path) -> None:
    graded = grade("number", f"{file}:short", f"{file}:asked", weights=(1.0, 0.5, -2.0))
    assert graded == Score(reward=0.5, info={"number": 1.0, "short": 1.0, "asked": 0.5})


def test_weights_are_one_by_default_and_one_reward_alone_is_handed_on(file: Path) -> None:
    assert grade("number", "exact").reward == 2.0
    assert grade("number") == 1.0
    assert grade("number", weights=(0.5,)) == Score(reward=0.5, info={"number": 1.0})


def test_a_function_may_ask_for_workspace_judge_and_the_whole_reply(file: Path, tmp_path: Path) -> None:
    graded = grade(f"{file}:counted", "exact", workspace=tmp_path)
    assert graded == Score(reward=5.0, info={"files": 1, "counted": 4.0, "exact": 1.0})


def test_all_columns_means_the_columns_of_the_row_alone(file: Path) -> None:
    assert grade(f"{file}:everything", row={"answer": 7, "judge": "mine"}) == 2.0


@pytest.mark.parametrize(("weight", "reward"), [(1.0, None), (0.0, 1.0)])
def test_one_that_abstains_makes_the_whole_abstain_unless_its_weight_is_zero(
    file: Path, weight: float, reward: float | None
) -> None:
    assert grade("number", f"{file}:unsure", weights=(1.0, weight)) == Score(
        reward=reward, info={"number": 1.0}
    )


def test_what_is_no_number_is_named(file: Path) -> None:
    with pytest.raises(TypeError, match="reward 'wrong' is '1' of type str, wanted a number"):
        grade("number", f"{file}:wrong")


def test_functions_of_one_name_are_told_by_their_files(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("def short(text):\n    return 0\n")
    assert set(grade(f"{file}:short", f"{other}:short").info) == {"mine.short", "other.short"}


@pytest.mark.parametrize(
    ("reward", "weights", "words"),
    [
        (("number",), (1.0, 2.0), "2 for 1 rewards"),
        (("number", "number"), (), "different ones"),
        ((), (), "at least one"),
        (("number", "numbr"), (), "'numbr' is none"),
    ],
)
def test_options_that_do_not_agree_are_refused(reward: Any, weights: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RewardOptions(reward=reward, reward_weights=weights)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-10, 10)), min_size=1, max_size=5))
def test_the_total_is_the_weighted_sum(pairs: list[tuple[float, float]]) -> None:
    values = {str(number): value for number, (value, _) in enumerate(pairs)}
    weights = {str(number): weight for number, (_, weight) in enumerate(pairs)}
    score = weighted(values, weights)
    assert score.reward == pytest.approx(sum(value * weight for value, weight in pairs))
    assert score.info == values
