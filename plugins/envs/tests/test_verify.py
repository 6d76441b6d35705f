"""Grading of rows, by the graders that come along and by a function of one's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from molt_plugin_envs.spec import VERIFY, VerifyOptions
from molt_plugin_envs.verify import Verify

from molt_core.api.environment import Reply, Score
from molt_core.api.findings import Finding
from molt_core.api.plan_view import ChosenPart, ModelFacts, PlanView
from molt_core.api.run_options import RunOptions
from molt_core.errors import MoltError


def graded(row: dict[str, object], text: str, reward: str = "number") -> object:
    return Verify(VerifyOptions(reward=reward)).score(row, Reply(text=text, truncated=False, num_tokens=1))


def findings(reward: str) -> list[Finding]:
    part = ChosenPart(spec=VERIFY, options=VerifyOptions(reward=reward), dist="molt-plugin-envs", version="0")
    view = PlanView(run=RunOptions(model="m"), parts={"envs": (part,)}, model=ModelFacts(source="folder"))
    return [finding for rule in VERIFY.rules for finding in rule(view)]


def written(folder: Path, text: str, name: str = "reward.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("answer", "text", "reward"),
    [
        ("4", "So it is 4.", 1.0),
        (4, "4.0", 1.0),
        ("some steps\n#### 1,234", "1234", 1.0),
        ("4", "4 or 5", 0.0),
        ("4", "four", 0.0),
    ],
)
def test_number_compares_last_numbers(answer: object, text: str, reward: float) -> None:
    assert graded({"answer": answer}, text) == reward


def test_number_refuses_an_answer_without_one() -> None:
    with pytest.raises(ValueError, match="'Paris' holds no number"):
        graded({"answer": "Paris"}, "3")


def test_exact_forgives_white_space_around_and_nothing_else() -> None:
    assert [graded({"label": "Paris"}, text, "exact") for text in (" Paris\n", "paris", "Paris.")] == [
        1.0,
        0.0,
        0.0,
    ]


def test_graders_compare_and_never_evaluate() -> None:
    assert graded({"answer": 4}, "__import__('os').getpid() or 2+2") == 0.0


def test_a_system_message_is_added_unless_the_row_has_one() -> None:
    environment = Verify(VerifyOptions(system="Be short."))
    assert [message["role"] for message in environment.prompt({"prompt": "p"})] == ["system", "user"]
    own = [{"role": "system", "content": "Mine."}, {"role": "user", "content": "p"}]
    assert environment.prompt({"messages": own}) == own


def test_a_function_gets_the_reply_and_every_column(tmp_path: Path) -> None:
    path = written(
        tmp_path, "def f(reply, **columns):\n    return float(len(columns)) if reply == 'yes' else 0.0\n"
    )
    assert graded({"prompt": "p", "answer": 1, "tools": []}, "yes", f"{path}:f") == 3.0


def test_a_function_that_names_its_columns_gets_those(tmp_path: Path) -> None:
    path = written(tmp_path, "def f(reply, *, answer, limit=5):\n    return float(reply == answer) + limit\n")
    assert graded({"prompt": "p", "answer": "a"}, "a", f"{path}:f") == 6.0


def test_a_function_may_be_async_and_return_numbers_for_metrics(tmp_path: Path) -> None:
    source = "from molt_core.api.environment import Score\n"
    source += "async def f(reply, answer):\n    return Score(reward=1.0, info={'n': 2.0})\n"
    path = written(tmp_path, source)
    result = graded({"answer": 1}, "x", f"{path}:f")
    assert asyncio.run(result) == Score(reward=1.0, info={"n": 2.0})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["None", "float('nan')", "'1'"])
def test_what_a_function_returns_is_handed_on_as_it_is(tmp_path: Path, value: str) -> None:
    path = written(tmp_path, f"def f(reply):\n    return {value}\n")
    assert repr(graded({}, "x", f"{path}:f")) == repr(eval(value))


def test_what_a_function_raises_is_not_swallowed(tmp_path: Path) -> None:
    path = written(tmp_path, "def f(reply):\n    raise KeyError('mine')\n")
    with pytest.raises(KeyError, match="mine"):
        graded({}, "x", f"{path}:f")


def test_two_files_of_one_name_and_one_named_like_a_library_do_not_meet(tmp_path: Path) -> None:
    import random

    results = []
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        path = written(tmp_path / folder, f"def f(reply):\n    return {number}\n", "random.py")
        results.append(graded({}, "x", f"{path}:f"))
    assert results == [0, 1]
    import random as again

    assert again is random


def test_a_relative_path_is_made_absolute_because_workers_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = VerifyOptions(reward="./reward.py:f")
    assert options.reward == (f"{tmp_path}/reward.py:f",)
    monkeypatch.chdir("/")
    assert VerifyOptions(reward=options.reward) == options


@pytest.mark.parametrize("reward", ["numbr", "reward.py", "reward.py:", "reward.txt:f", "reward.py:a b"])
def test_a_reward_that_is_no_grader_and_no_function_is_refused(reward: str) -> None:
    with pytest.raises(ValueError, match=r"must be exact, number, or FILE\.py:FUNCTION"):
        VerifyOptions(reward=reward)


def test_the_check_does_not_run_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "raise SystemExit(3)\ndef f(reply): ...\n")
    assert findings(f"{path}:f") == []
    assert findings("number") == []


def test_names_that_are_imported_or_assigned_count_as_defined(tmp_path: Path) -> None:
    path = written(tmp_path, "from mine import f\ng = lambda reply: 1.0\n")
    assert findings(f"{path}:f") == findings(f"{path}:g") == []


def test_a_missing_file_a_missing_function_and_a_broken_file_are_found_before_launch(tmp_path: Path) -> None:
    path = written(tmp_path, "def length(reply):\n    def inner(): ...\n    return 1.0\n")
    (missing,) = findings(f"{tmp_path / 'gone.py'}:f")
    assert "can't be read: No such file" in missing.message
    (misspelt,) = findings(f"{path}:lenght")
    assert (misspelt.message.endswith("defines no 'lenght'"), misspelt.fix) == (True, "did you mean length?")
    assert len(findings(f"{path}:inner")) == 1
    (broken,) = findings(f"{written(tmp_path, 'def f(:', 'broken.py')}:f")
    assert "broken.py:1: not Python" in broken.message
    assert {finding.code for finding in (missing, misspelt, broken)} == {"ENVS1"}


def test_a_file_that_fails_on_import_is_named_with_its_error(tmp_path: Path) -> None:
    path = written(tmp_path, "import no_such_module\ndef f(reply): ...\n")
    with pytest.raises(MoltError, match=r"reward\.py' fails on import: ModuleNotFoundError"):
        Verify(VerifyOptions(reward=f"{path}:f"))
