"""Tasks of `arithmetic`: reproducible, right, and disjoint from those held out."""

from __future__ import annotations

from itertools import islice

import pytest
from molt_plugin_envs.arithmetic import Arithmetic
from molt_plugin_envs.spec import ArithmeticOptions

from molt_core.api.environment import Reply


def problems(split: str, seed: int, count: int, **options: object) -> list[tuple[int, str, int]]:
    rows = islice(Arithmetic(ArithmeticOptions(**options)).tasks(split, seed), count)
    return [(row["a"], row["operation"], row["b"]) for row in rows]


def reply(text: str) -> Reply:
    return Reply(text=text, truncated=False, num_tokens=3)


def test_equal_seeds_make_equal_tasks_and_others_do_not() -> None:
    assert problems("train", 0, 50) == problems("train", 0, 50) != problems("train", 1, 50)


@pytest.mark.parametrize("options", [{}, {"digits": 2}, {"operations": ("+", "-", "*")}, {"digits": 9}])
def test_no_trained_problem_is_evaluated_whatever_the_seeds(options: dict[str, object]) -> None:
    trained = {problem for seed in range(3) for problem in problems("train", seed, 2000, **options)}
    evaluated = {problem for seed in range(3) for problem in problems("eval", seed, 500, **options)}
    swapped = {(b, operation, a) for a, operation, b in evaluated if operation in "+*"}
    assert evaluated
    assert not trained & (evaluated | swapped)


def test_single_digit_addition_is_split_without_loss_and_evaluation_never_repeats() -> None:
    evaluated = problems("eval", 0, 1000)
    trained = problems("train", 0, 100 - len(evaluated))
    assert len(set(evaluated)) == len(evaluated) >= 16
    assert {*trained, *evaluated} == {(a, "+", b) for a in range(10) for b in range(10)}
    assert sorted(problems("eval", 1, 1000)) == sorted(evaluated)


def test_training_goes_on_for_ever() -> None:
    assert len(problems("train", 0, 1000)) == 1000


def test_answers_are_right_and_operands_have_the_digits_asked_for() -> None:
    environment = Arithmetic(ArithmeticOptions(digits=2, operations=("+", "-", "*")))
    rows = list(islice(environment.tasks("train", 0), 300))
    assert {row["operation"] for row in rows} == {"+", "-", "*"}
    for row in rows:
        assert 0 <= row["a"] < 100
        assert 0 <= row["b"] < 100
        assert row["answer"] == eval(f"{row['a']}{row['operation']}{row['b']}")


def test_the_prompt_is_short_and_its_system_message_can_be_left_out() -> None:
    row = {"a": 3, "operation": "+", "b": 4, "answer": 7}
    question = {"role": "user", "content": "What is 3+4? Answer with just the number."}
    assert Arithmetic(ArithmeticOptions()).prompt(row) == [
        {"role": "system", "content": "Calculate."},
        question,
    ]
    assert Arithmetic(ArithmeticOptions(system="")).prompt(row) == [question]


@pytest.mark.parametrize(
    ("text", "reward"),
    [("7", 1.0), (" 7.\n", 1.0), ("3 + 4 = 7", 1.0), ("7 or 8", 0.0), ("17", 0.0), ("seven", 0.0), ("", 0.0)],
)
def test_the_last_number_decides(text: str, reward: float) -> None:
    row = {"a": 3, "operation": "+", "b": 4, "answer": 7}
    assert Arithmetic(ArithmeticOptions()).score(row, reply(text)) == reward


def test_a_reply_that_was_cut_off_earns_nothing() -> None:
    row = {"a": 3, "operation": "+", "b": 4, "answer": 7}
    assert Arithmetic(ArithmeticOptions()).score(row, Reply(text="7", truncated=True, num_tokens=3)) == 0.0


@pytest.mark.parametrize(
    "options", [{"digits": 0}, {"digits": 10}, {"operations": ()}, {"operations": ("+", "+")}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        ArithmeticOptions(**options)
