"""The agents and tools under examples/, each as its own TOML configures it, through the real gateway.

The engine speaks from a script, because no small model calls tools well; tokenizer, template,
parsers, capture, SDKs, subprocesses and graders are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from molt_plugin_models.tiny import make_tiny

from molt_core.api.gateway import GatewayContext
from molt_core.data.tasks import Task
from molt_core.experience import Outcome, Rollout
from molt_core.loop.agent_rollout import run_agent
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.turn_rollout import run_turns
from molt_core.plan.check import examine
from molt_core.plan.plan import freeze
from molt_core.plugins.scan import scan
from molt_core.testing.scripted_engine import ScriptedEngine

ROOT = Path(__file__).parents[2]
END_TOKEN_ID = 2
SUM = {"prompt": "What is 1+2?", "answer": "3"}
Script = Callable[[str, int], str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny(folder)
    return folder


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def rollout_of(model: Path, example: str, script: Script, row: dict[str, Any], *flags: str) -> Rollout:
    """One rollout of an example, with the policy's words from a script."""
    plan = freeze(examine([f"examples/{example}", *flags], scan()).view)
    engine = ScriptedEngine(model, script, end_token_id=END_TOKEN_ID)
    context = GatewayContext(model_folder=str(model), max_length=8192, end_token_ids=(END_TOKEN_ID,))
    gateway = plan.one("gateways").build(context)
    request = RolloutRequest(
        rollout_id="0-0", group_id="0", task=Task(task_id="train/000000", row=row), temperature=1.0, max_tokens=2048,
        seed=0, timeout_s=60.0,
    )  # fmt: skip
    agent, environment = plan.first("agents"), plan.first("envs")
    if agent:
        grader = environment.build() if environment else None
        run = partial(run_agent, make_agent=agent.maker(), environment=grader)
    else:
        run = partial(run_turns, make_environment=plan.one("envs").maker())

    async def main() -> Rollout:
        await gateway.start()
        try:
            return await run(request, gateway=gateway, generate=engine.generate, env_timeout_s=30.0)
        finally:
            await gateway.stop()

    rollout = asyncio.run(main())
    generated = sorted(token for _, reply in engine.record for token in reply.token_ids.tolist())
    parts = [*rollout.segments, *(left.segment for left in rollout.left_out)]
    assert sorted(token for part in parts for token in part.token_ids[part.sampled].tolist()) == generated
    return rollout


def says(*texts: str) -> Script:
    return lambda prompt, number: texts[number]


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def test_the_agent_with_the_openai_sdk_calls_its_tool_and_is_graded_by_the_environment(model: Path) -> None:
    seen = []

    def script(prompt: str, number: int) -> str:
        seen.append(prompt)
        return "So it is 3." if number else call("add", '{"a": 1, "b": 2}')

    rollout = rollout_of(model, "openai_agent.toml", script, SUM)
    assert (rollout.outcome, rollout.reward, rollout.reply_text) == (Outcome.FINISHED, 1.0, "So it is 3.")
    assert len(rollout.segments) == 1, "the second turn goes on where the first one ended"
    assert "What is 1+2?" in seen[0]
    assert "3" in seen[1].removeprefix(seen[0])


def test_the_agent_with_the_openai_sdk_tells_of_mistakes_and_gives_up_after_two_turns(
    model: Path,
) -> None:
    rollout = rollout_of(model, "openai_agent.toml", says(*2 * [call("add", '{"a": 1}')]), SUM)
    assert (rollout.outcome, rollout.reward) == (Outcome.TRUNCATED, 0.0)


@pytest.mark.parametrize(
    ("texts", "reward"),
    [
        (["3"], 1.0),
        ([call("look_up", '{"sum": "1+2"}'), "3"], 0.9),
        (["4"], 0.0),
        (3 * [call("look_up", "{}")], 0.0),
    ],
)
def test_the_agent_with_the_anthropic_sdk_grades_itself(model: Path, texts: list[str], reward: float) -> None:
    rollout = rollout_of(model, "anthropic_agent.toml", says(*texts), SUM)
    assert rollout.outcome == Outcome.FINISHED, rollout.detail
    assert rollout.reward == pytest.approx(reward)
    assert len(rollout.segments) == 1


def test_the_compacting_agent_leaves_two_segments_with_one_reward(model: Path) -> None:
    rollout = rollout_of(
        model, "compacting_agent.toml", says("I count on my fingers.", "Count on fingers.", "3"), SUM
    )
    assert (rollout.outcome, rollout.reward) == (Outcome.FINISHED, 1.0)
    assert len(rollout.segments) == 2
    assert rollout.info["summary_tokens"] > 1


@pytest.mark.parametrize(
    ("texts", "reward", "reply"),
    [
        ([call("write", '{"path": "answer.txt", "text": "3"}'), "Done."], 1.0, "Done."),
        ([call("write", '{"path": "answer.txt", "text": "4"}'), "Done."], 0.1, "Done."),
        (["It is 3."], 0.0, "It is 3."),
        (3 * [call("write", '{"path": 1}')], 0.0, ""),
    ],
)
def test_an_existing_harness_runs_unmodified_and_its_workspace_is_graded(
    model: Path, texts: list[str], reward: float, reply: str
) -> None:
    rollout = rollout_of(model, "command.toml", says(*texts), SUM)
    assert rollout.outcome == Outcome.FINISHED, rollout.detail
    assert (rollout.reward, rollout.reply_text) == (reward, reply)
    assert rollout.info["command_failed"] == float(not reply)
    assert len(rollout.segments) == 1


def test_the_python_tool_runs_what_the_policy_writes(model: Path) -> None:
    def script(prompt: str, number: int) -> str:
        return r"\boxed{1518}" if "1518" in prompt else call("python", '{"code": "print(33 * 46)"}')

    rollout = rollout_of(model, "python_tool.toml", script, {"prompt": "What is 33 * 46?", "answer": "1518"})
    assert (rollout.outcome, rollout.reward) == (Outcome.FINISHED, 1.0), rollout.detail
    assert [turn.reward for turn in rollout.turn_rewards] == [0.0, 1.0]
    assert rollout.info["tool_calls"] == 1.0
    assert len(rollout.segments) == 1
