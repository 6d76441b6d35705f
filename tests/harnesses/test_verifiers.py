"""verifiers 0.1.14 in a Python of its own: real environments of it, a real gateway, a scripted policy."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import assert_exact, running
from molt_plugin_verifiers.agent import _DRIVERS, VerifiersAgent
from molt_plugin_verifiers.process import DriverError
from molt_plugin_verifiers.spec import VerifiersOptions
from molt_plugin_verifiers.tasks import VerifiersTasks

from molt_core.api.agent import AgentTask, Result
from molt_core.api.gateway import Capture, SessionRequest
from molt_core.api.options import NoOptions
from molt_core.report.json_lines import read_json_lines
from molt_core.testing.scripted_engine import ScriptedEngine
from tests.harnesses.install import bin_folder
from tests.harnesses.kit import END_TOKEN_ID, tool_call
from tests.road.conftest import Run

pytestmark = pytest.mark.harness
ENVIRONMENTS = Path(__file__).with_name("environments")


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of verifiers, with the environments of this folder."""
    program = tmp_path_factory.mktemp("verifiers") / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ENVIRONMENTS} exec {bin_folder("verifiers")}/python "$@"\n')
    program.chmod(0o755)
    return str(program)


def rows(python: str, split: str = "train", **args: Any) -> Any:
    options = VerifiersOptions(id="molt-words", python=python, args=json.dumps(args))
    return VerifiersTasks(options).tasks(split, 0)


@asynccontextmanager
async def stage(
    model_folder: Path, script: Callable[[str, int], str], *, max_length: int = 4096
) -> AsyncIterator[Callable[..., Any]]:
    engine = ScriptedEngine(model_folder, script, end_token_id=END_TOKEN_ID, max_length=max_length)

    async def play(row: dict[str, Any], *, alone: bool = True) -> tuple[Result, Capture]:
        request = SessionRequest(
            rollout_id="rollout",
            generate=engine.generate,
            max_tokens=256,
            temperature=1.0,
            seed=0,
            timeout_s=60.0,
        )
        session = rig.gateway.open(request)
        task = AgentTask(task_id="train/0", row=row, messages=(), timeout_s=60.0)
        try:
            result = await VerifiersAgent(NoOptions()).run(task, session)
        finally:
            capture = await session.close()
        if alone:
            assert_exact(capture, engine.record)
        return result, capture

    async with running(
        model_folder, engine.generate, max_length=max_length, end_token_id=END_TOKEN_ID
    ) as rig:
        try:
            yield play
        finally:
            for starting in _DRIVERS.pop(asyncio.get_running_loop(), {}).values():
                await (await starting).stop()


def test_rows_are_those_of_its_data_set_and_some_are_held_out(python: str) -> None:
    held_out = [row["answer"] for row in rows(python, "eval")]
    assert held_out == ["3", "18"]
    train = {row["answer"] for row in itertools.islice(rows(python), 40)}
    assert train == {str(3 * number) for number in range(1, 11)} - {*held_out}


async def test_a_question_is_asked_answered_and_graded(python: str, model_folder: Path) -> None:
    row = next(rows(python))
    async with stage(model_folder, lambda prompt, number: f"It has {row['answer']} letters.") as play:
        result, capture = await play(row)
    assert (result.reward, result.truncated) == (1.0, False)
    assert result.info["right"] == result.info["num_turns"] == 1.0
    assert len(capture.segments) == 1
    assert row["question"] in capture.prompt_text


async def test_tools_run_there_and_the_turns_are_one_segment(python: str, model_folder: Path) -> None:
    def script(prompt: str, number: int) -> str:
        assert "count_letters" in prompt
        assert ("<|im_start|>tool" in prompt) == (number == 1)
        return tool_call("count_letters", {"word": "abcabc"}) if number == 0 else "It has 6 letters."

    async with stage(model_folder, script) as play:
        result, capture = await play(next(row for row in rows(python, kind="tools") if row["answer"] == "6"))
    assert result.reward == 1.0
    assert result.info["num_turns"] == 2.0
    (segment,) = capture.segments
    assert len(capture.ends) == 2
    assert segment.num_sampled < segment.num_tokens


async def test_what_does_not_fit_the_context_is_truncated(python: str, model_folder: Path) -> None:
    row = next(rows(python, system_prompt="long " * 300))
    async with stage(model_folder, lambda prompt, number: "no", max_length=128) as play:
        result, capture = await play(row)
    assert result.truncated
    assert capture.segments == ()


async def test_a_policy_that_can_not_be_asked_fails_the_rollout(python: str, model_folder: Path) -> None:
    row = next(rows(python))

    def broken(prompt: str, number: int) -> str:
        raise ValueError("the engine refuses this")

    async with stage(model_folder, broken) as play:
        with pytest.raises(DriverError, match="ModelError"):
            await play(row)


async def test_many_rollouts_at_once_stay_apart(python: str, model_folder: Path) -> None:
    chosen = list(itertools.islice(rows(python), 8))
    async with stage(
        model_folder, lambda prompt, number: f"{prompt.split('How long is ')[1].count('abc') * 3}"
    ) as play:
        played = await asyncio.gather(*(play(row, alone=False) for row in chosen))
    for row, (result, capture) in zip(chosen, played, strict=True):
        assert (result.reward, len(capture.segments)) == (1.0, 1)
        assert row["question"] in capture.prompt_text


def test_it_is_evaluated_like_any_other(python: str, tmp_path: Path) -> None:
    run = Run(
        tmp_path, "--model", "tiny", "--engine", "transformers", "--executor", "local", "--dtype", "float32",
        "--max-tokens", "8", "--max-length", "256", "--agent", "verifiers", "--env", "verifiers",
        "--env.id", "molt-words", "--env.python", python, "--eval-samples", "2", "--eval-temperature", "1",
        command="eval",
    )  # fmt: skip
    try:
        code, output = run.wait()
        assert code == 0, output
        episodes = read_json_lines(run.folder / "episodes.jsonl")
        assert [each["num_tokens"] > 0 for each in episodes] == [True] * 4
        assert {each["outcome"] for each in episodes} <= {"finished", "truncated"}
        assert all("How long is" in each["segments"][0] for each in episodes)
        assert run.left_behind() == []
    finally:
        run.end()
