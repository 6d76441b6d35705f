"""Rows and rollouts over the driver's process, with a stand-in for the library in a Python of its own."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from molt_plugin_verifiers.agent import _DRIVERS, VerifiersAgent
from molt_plugin_verifiers.process import DriverError
from molt_plugin_verifiers.spec import AGENT, ENVIRONMENT, VerifiersOptions
from molt_plugin_verifiers.tasks import VerifiersTasks

from molt_core.api.agent import AgentTask, Result
from molt_core.api.options import NoOptions
from molt_core.errors import ConfigError
from molt_core.plan.check import examine
from molt_core.plugins.scan import scan

SESSION: Any = SimpleNamespace(base_url="http://gate/v1", api_key="secret", model="policy")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the stand-in, and nothing of Molt."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    shutil.copytree(Path(__file__).with_name("stand_in"), packages, dirs_exist_ok=True)
    return folder / "bin" / "python"


def made(python: Path, *, id: str = "odd-env", **options: Any) -> VerifiersTasks:
    return VerifiersTasks(VerifiersOptions(python=str(python), id=id, **options))


def row(python: Path, **columns: Any) -> dict[str, Any]:
    first = next(made(python).tasks("train", 0))
    return {**first, **columns}


async def play(row: dict[str, Any]) -> Result:
    task = AgentTask(task_id="train/0", row=row, messages=(), timeout_s=30.0)
    return await VerifiersAgent(NoOptions()).run(task, SESSION)


@pytest.fixture
async def alone() -> AsyncIterator[None]:
    """Ends the processes of the test."""
    yield
    for starting in _DRIVERS.pop(asyncio.get_running_loop(), {}).values():
        if starting.done() and starting.exception() is None:
            await starting.result().stop()


def ids(rows: Any, count: int) -> list[int]:
    return [one["example_id"] for one in itertools.islice(rows, count)]


def test_training_shuffles_each_time_and_evaluation_has_rows_of_its_own(python: Path) -> None:
    env = made(python, args='{"eval_rows": 3, "num_rows": 6}')
    assert ids(env.tasks("eval", 0), 9) == [100, 101, 102]
    train = ids(env.tasks("train", 1), 18)
    assert [sorted(train[at : at + 6]) for at in (0, 6, 12)] == [list(range(6))] * 3
    assert train == ids(env.tasks("train", 1), 18)
    assert train != ids(env.tasks("train", 2), 18)


def test_without_rows_for_evaluation_some_are_held_out(python: Path) -> None:
    env = made(python)
    assert ids(env.tasks("eval", 0), 9) == [0, 5]
    assert set(ids(env.tasks("train", 0), 16)) == set(range(10)) - {0, 5}


async def test_a_rollout_is_played_against_the_session(python: Path, alone: None) -> None:
    result = await play(row(python, what="who"))
    assert result.reward == 0.5
    assert result.info == {"http://gate/v1": 1, "secret": 2, "policy": 3, "3": 4, "{}": 5}, (
        "the row has lost the program, and sampling is left to the gateway"
    )


async def test_what_is_no_number_is_no_metric(python: Path, alone: None) -> None:
    assert (await play(row(python))).info == {"cancelled": 0}


async def test_a_time_limit_of_the_environment_truncates(python: Path, alone: None) -> None:
    assert (await play(row(python, what="late"))).truncated


@pytest.mark.parametrize(
    ("what", "said"), [("raise", r"KeyError: 'odd' \(.*odd_env.py:"), ("fail", "refused")]
)
async def test_an_error_is_no_reward_of_zero(python: Path, alone: None, what: str, said: str) -> None:
    with pytest.raises(DriverError, match=said):
        await play(row(python, what=what))
    assert (await play(row(python))).reward == 0.5, "others go on"


async def test_a_process_that_dies_takes_its_rollouts_along_and_is_started_again(
    python: Path, alone: None
) -> None:
    waiting = asyncio.create_task(play(row(python, what="wait")))
    await play(row(python))
    with pytest.raises(DriverError, match="ended with 7: (.|\n)*last words"):
        await play(row(python, what="die"))
    with pytest.raises(DriverError, match="ended with 7"):
        await waiting
    assert (await play(row(python))).reward == 0.5


async def test_a_cancelled_rollout_ends_there_too(python: Path, alone: None) -> None:
    waiting = asyncio.create_task(play(row(python, what="wait")))
    await play(row(python))
    await play(row(python))  # sent after the one that waits, which has begun when this is answered
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await play(row(python))  # a turn of the other event loop, in which it ends
    assert (await play(row(python))).info == {"cancelled": 1}


async def test_many_rollouts_share_one_process(python: Path, alone: None) -> None:
    results = await asyncio.gather(*(play(row(python)) for _ in range(8)))
    assert len(results) == 8
    assert len(_DRIVERS[asyncio.get_running_loop()]) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"id": "no-such-env"}, "No module named 'no_such_env'"),
        ({"args": '{"other": 1}'}, "unexpected keyword argument 'other'"),
        ({"args": '{"group": true}'}, "a group of rollouts"),
        ({"args": '{"num_rows": 0}'}, "no rows for train"),
    ],
)
def test_what_can_not_be_loaded_says_why(python: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        next(made(python, **options).tasks("train", 0))


def test_another_interface_of_verifiers_is_refused(python: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    packages = tmp_path / "packages" / "verifiers"
    packages.mkdir(parents=True)
    (packages / "__init__.py").write_text('__version__ = "0.4.0"\n')
    wrapper = tmp_path / "bin" / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={packages.parent} exec {python} "$@"\n')
    wrapper.chmod(0o755)
    with pytest.raises(ConfigError, match="verifiers 0.4.0 has neither .* wanted an environment of 0.1"):
        next(made(wrapper).tasks("train", 0))


def test_a_python_without_verifiers_is_told_what_to_install(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    with pytest.raises(ConfigError, match="has no verifiers: .* install verifiers==0.1.14"):
        next(made(tmp_path / "bin" / "python").tasks("train", 0))


def test_a_python_that_is_none_is_refused_before_launch() -> None:
    with pytest.raises(ValueError, match="must be a Python to run"):
        VerifiersOptions(id="x", python="/no/such/python")


def found(*argv: str) -> list[str]:
    argv = ("--model", "tiny", "--max-tokens", "8", "--env", "verifiers", "--env.id", "x", *argv)
    findings = examine(argv, scan()).findings
    return [finding.fix for finding in findings if finding.code == "VERIFIERS1"]


def test_environment_and_agent_go_together(tmp_path: Path) -> None:
    assert found("--agent", "verifiers") == []
    assert found() == ["--agent verifiers"]
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x"}\n')
    assert found("--agent", "verifiers", "--eval-data", str(tmp_path / "rows.jsonl")) == [
        "leave --eval-data out"
    ]
    assert (AGENT.grades, ENVIRONMENT.makes_tasks) == (True, True)
