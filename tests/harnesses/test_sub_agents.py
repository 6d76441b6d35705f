"""Two sub-agents with equal tasks at the same time: three conversations side by side, each with tokens of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.harnesses.harnesses import HARNESSES
from tests.harnesses.kit import ANSWER, COMMAND, PRINTED, PROMPT, play, tool_call

pytestmark = pytest.mark.harness
PART: Final = "Do the part."
DONE: Final = "The part is done."
TASK: Final = {"description": "Part", "prompt": PART}


def _both(name: str, **more: str) -> Callable[[str], str]:
    return lambda prompt: "\n".join([tool_call(name, {**TASK, **more})] * 2)


def _codex(prompt: str) -> str:
    """Sub-agents of Codex run on their own, and are waited for."""
    ids = dict.fromkeys(re.findall(r'"agent_id":\s*"([^"]+)"', prompt))
    if ids:
        return tool_call("multi_agent_v1__wait_agent", {"targets": list(ids)})
    return "\n".join([tool_call("multi_agent_v1__spawn_agent", {"message": PART})] * 2)


DELEGATE: Final = {
    "claude-code": _both("Agent"),
    "codex": _codex,
    "opencode": _both("task", subagent_type="general"),
    "qwen-code": _both("agent", subagent_type="general-purpose"),
}


@pytest.mark.parametrize("name", DELEGATE)
async def test_sub_agents_are_conversations_of_their_own(name: str, model_folder: Path) -> None:
    harness = HARNESSES[name]

    def policy(prompt: str, number: int) -> str:
        if PROMPT not in prompt:
            return DONE if PRINTED in prompt else harness.call(COMMAND)
        return ANSWER if prompt.count(DONE) >= 2 else DELEGATE[name](prompt)

    played = await play(harness, model_folder, policy)
    assert ANSWER in played.text
    segments = [set(map(int, ids.split("+"))) for ids in played.shape.split("/")]
    of_main = {number for number, prompt in enumerate(played.prompts) if PROMPT in prompt}
    assert of_main in segments
    assert sorted(map(len, segments)) == sorted([2, 2, len(of_main)]), json.dumps(played.shape)
