"""The agent against a session that replies with a script."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from molt_plugin_riddles.agent import Riddles
from molt_plugin_riddles.spec import RiddleOptions

from molt_core.api.agent import AgentTask, ChatReply

ROW = {"riddle": "What has a neck but no head?", "hint": "You drink from it.", "answers": ["bottle"]}


class Scripted:
    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.seen: list[Any] = []

    async def chat(self, messages: Any, **_: Any) -> ChatReply:
        self.seen.append(list(messages))
        return ChatReply(
            text=self.replies.pop(0),
            reasoning="",
            tool_calls=(),
            finish_reason="stop",
            num_tokens=3,
            sample_id=0,
        )


@pytest.mark.parametrize(
    ("replies", "reward"),
    [(["A bottle!"], 1.0), (["A giraffe.", "A bottle."], 0.75), (["A giraffe.", "A swan."], 0.0)],
)
def test_the_reward_is_less_with_the_hint(replies: list[str], reward: float) -> None:
    session = Scripted(*replies)
    agent = Riddles(RiddleOptions(hint_costs=0.25))
    task = AgentTask(task_id="train/0", row=ROW, messages=(), timeout_s=60)
    result = asyncio.run(agent.run(task, session))  # type: ignore[arg-type]
    assert result.reward == reward
    assert [len(messages) for messages in session.seen] == [1, 3][: len(replies)]
