"""A rollout whose engine dies is no outcome, whatever the code that asked makes of it."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import running, save_model, scripted

from molt_core.api.environment import Step
from molt_core.data.tasks import Task
from molt_core.errors import ActorLost
from molt_core.loop.agent_rollout import run_agent
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.turn_rollout import run_turns

HELLO = [{"role": "user", "content": "Hello?"}]


async def chats(task: Any, session: Any) -> float:
    await session.chat(HELLO)
    try:
        await session.chat(HELLO)
    except Exception:
        return 0.0
    return 1.0


def requests(task: Any, session: Any) -> float:
    """Blocking, over HTTP, and never gives up."""
    for _ in range(100):
        request = urllib.request.Request(
            f"{session.base_url}/chat/completions",
            json.dumps({"model": "policy", "messages": HELLO}).encode(),
            {"authorization": f"Bearer {session.api_key}", "content-type": "application/json"},
        )
        try:
            urllib.request.urlopen(request).read()
        except OSError:
            continue
    return 0.0


async def asks_a_judge(task: Any, session: Any) -> float:
    await session.chat(HELLO)
    try:
        await session.judge("Good?")
    except Exception:
        return 0.0
    return 1.0


async def asks_judges(task: Any, session: Any) -> float:
    await session.chat(HELLO)
    async with asyncio.TaskGroup() as judges:
        for _ in range(3):
            judges.create_task(session.judge("Good?"))
    return 1.0


async def only_chats(task: Any, session: Any) -> None:
    await session.chat(HELLO)


class Judged:
    """Grades, and as an environment of several turns steps, by a judge that it does not trust to answer."""

    def prompt(self, row: Any) -> Any:
        return HELLO

    reset = prompt

    async def score(self, row: Any, reply: Any) -> float:
        try:
            return float(await reply.judge("Good?") == "yes")
        except Exception:
            return 0.0

    async def step(self, reply: Any) -> Step:
        return Step(reward=await self.score({}, reply), done=True)

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    save_model(made)
    return made


@pytest.mark.parametrize("agent", [chats, requests, asks_a_judge, asks_judges, only_chats, None])
async def test_the_loss_reaches_whoever_asked_for_the_rollout(folder: Path, agent: Any) -> None:
    lost = ActorLost("engine-0 died during generate()", actor="engine-0")
    engine = scripted(folder, lambda prompt, number: lost if number else "Hello.")
    request = RolloutRequest(
        rollout_id="0-0", group_id="0", task=Task(task_id="t", row={}), temperature=1.0, max_tokens=16, seed=1,
        timeout_s=20.0,
    )  # fmt: skip

    class Agent:
        run = staticmethod(agent)

    run = partial(run_turns, make_environment=Judged)
    if agent is not None:
        run = partial(run_agent, make_agent=Agent, environment=Judged() if agent is only_chats else None)
    async with running(folder, engine.generate) as rig:
        with pytest.raises(ActorLost, match="engine-0 died") as caught:
            await run(request, gateway=rig.gateway, generate=rig.generate, env_timeout_s=5.0)
    assert caught.value.actor == "engine-0"
