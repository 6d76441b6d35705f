"""The environment `reasoning-gym` with the real library, installed beside the lock."""

from __future__ import annotations

import itertools
import pickle
import sys

import pytest
from molt_plugin_reasoning_gym.environment import ReasoningGym
from molt_plugin_reasoning_gym.spec import ReasoningGymOptions

from molt_core.api.environment import Reply
from molt_core.errors import ConfigError
from tests.harnesses.install import bin_folder

pytestmark = pytest.mark.harness


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    (packages,) = bin_folder("reasoning-gym").parent.glob("lib/python*/site-packages")
    # last, so that what the lock has is taken from there
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])


def made(task: str = "chain_sum", **options: str) -> ReasoningGym:
    return ReasoningGym(ReasoningGymOptions(task=task, **options))


def say(text: str) -> Reply:
    return Reply(text=text, truncated=False, num_tokens=1)


def questions(env: ReasoningGym, split: str, seed: int, count: int = 60) -> list[str]:
    return [row["question"] for row in itertools.islice(env.tasks(split, seed), count)]


def test_training_depends_on_the_seed_evaluation_does_not_and_they_never_meet() -> None:
    env = made(config='{"max_terms": 2, "max_digits": 1}')
    train, other = (questions(env, "train", seed, 400) for seed in (0, 1))
    held_out = questions(env, "eval", 0)
    assert train == questions(env, "train", 0, 400)
    assert train != other
    assert held_out == questions(env, "eval", 5)
    assert len(set(held_out)) == len(held_out)
    assert not {*train, *other} & {*held_out}, "so few problems that seeds alone would not keep them apart"


def test_a_task_with_few_problems_ends_its_evaluation_and_goes_on_training() -> None:
    env = made(config='{"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}')
    held_out = questions(env, "eval", 0, 10**6)
    assert 10 < len(held_out) < 100
    assert len(questions(env, "train", 0, 2000)) == 2000


@pytest.mark.parametrize(
    "task",
    [
        "chain_sum", "spell_backward", "knights_knaves", "simple_equations", "mini_sudoku", "zebra_puzzles",
        "game_of_life", "needle_haystack", "family_relationships",
    ],
)  # fmt: skip
def test_the_known_answer_of_a_problem_is_worth_1_and_another_less(task: str) -> None:
    env = made(task)
    row = pickle.loads(pickle.dumps(next(env.tasks("train", 0))))
    system, user = env.prompt(row)
    assert "<answer>" in system["content"]
    assert user["content"] == row["question"]
    assert made(task).score(row, say(f"<answer>x</answer> so <answer> {row['answer']} </answer>")) == 1.0
    assert env.score(row, say("<answer>something else</answer>")) < 1.0


def test_without_the_tag_there_is_no_answer_unless_the_whole_reply_is_one() -> None:
    env, whole = made(), made(answer="text", system="")
    row = next(env.tasks("eval", 0))
    assert env.score(row, say(row["answer"])) == 0.0
    assert whole.score(row, say(f" {row['answer']}\n")) == 1.0
    assert [message["role"] for message in whole.prompt(row)] == ["user"]


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        ({"task": "chain_sums"}, "'chain_sums' is unknown", "did you mean chain_sum?"),
        ({"task": "xyzzy"}, "'xyzzy' is unknown", "knights_knaves"),
        ({"config": '{"terms": 3}'}, "terms", "--env.config"),
        ({"config": '{"min_terms": 9, "max_terms": 3}'}, "can't be made", "--env.config"),
    ],
)
def test_a_wrong_task_or_configuration_says_what_to_do(options: dict[str, str], said: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=said) as wrong:
        made(**options)
    assert fix in wrong.value.findings[0].fix
