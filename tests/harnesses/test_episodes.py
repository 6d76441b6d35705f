"""Real harnesses, unmodified, through whole episodes: what trains after each, whatever befalls it.

Every episode is also checked for what holds of any (`kit.play`): each token that was sampled is captured
once, with its log-prob and version, after the very prompt that the engine had; no process is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harnesses.harnesses import HARNESSES
from tests.harnesses.kit import ANSWER, PRINTED
from tests.harnesses.scenarios import SCENARIOS

EXPECTED: Final = """
                         plain dropped lost  length bad_arguments unknown_tool empty parallel overflow over_limit
mini-swe-agent           0+1   0/1+2   0+1   0/1+2  0/1+2         0/1+2        0/1+2 0+1      0!~      0!
smolagents-tools         0/1   0/1/2   0/1   0+1/2  0/1/2         0/1/2        0+1/2 0/1      0!~      0!
smolagents-code          0/1   0/1/2   0/1   0/1/2  0/1/2         0/1/2        0/1/2 -        0!~      0!
openai-agents-responses  0+1   0/1+2   0+1   0!~    0+1+2         0!           0     0+1      0!~      0!
openai-agents-chat       0+1   0/1+2   0+1   0~     0+1+2         0!           0     0+1      0!~      0!
langgraph-chat           0+1   0/1+2   0+1   0~     0+1+2         0+1+2        0     0+1      0!~      0!
langgraph-responses      0+1   0/1+2   0+1   0~     0+1+2         0+1+2        0     0+1      0!~      0!
langgraph-messages       0+1   0/1+2   0+1   0~     0+1+2         0+1+2        0     0+1      0!~      0!
claude-code              0+1   0/1+2   0+1   0+1+2  0+1+2         0+1+2        0/1+2 0+1      0!~      0!
claude-code-title        0+1*  -       -     -      -             -            -     -        -        -
codex                    0+1   0/1+2   0+1   0!~    0+1+2         0+1+2        0     0+1      0!~      0!
opencode                 0+1*  0/1+2*  0+1*  0*~    0+1+2*        0/1+2*       0*    0+1*     0/1**!   0*!
qwen-code                0+1   0!      0+1   0/1+2  0+1+2         0+1+2        0/1+2 0+1      0/1*     0!
"""
"""The segments as `Played.shape` writes them, and `*` for each side call, which is left out; `!`: the exit code is not
0; `~`: truncated; `-`: does not apply."""
QUICK: Final = ("smolagents-tools", "openai-agents-responses")
"""Of these, some run with all other tests."""
MOST_REFUSED: Final = 5
"""Requests that a harness makes after it was told that its conversation does not fit, or is over."""


def cells() -> Iterator[Any]:
    names, *rows = (line.split() for line in EXPECTED.strip().splitlines())
    for harness, *row in rows:
        for scenario, expected in zip(names, row, strict=True):
            quick = harness in QUICK and scenario in ("plain", "dropped", "parallel")
            marks = () if quick else pytest.mark.harness
            if expected != "-":
                yield pytest.param(harness, scenario, expected, id=f"{harness}-{scenario}", marks=marks)


@pytest.mark.parametrize(("name", "scenario", "expected"), list(cells()))
async def test_an_episode(name: str, scenario: str, expected: str, model_folder: Path) -> None:
    harness = HARNESSES[name]
    played = await SCENARIOS[scenario](harness, model_folder)
    if scenario in ("overflow", "over_limit"):
        assert played.num_requests <= len(played.record) + MOST_REFUSED
    ended = "!" * bool(played.result.info["command_failed"]) + "~" * played.capture.truncated
    assert f"{played.shape}{'*' * len(played.capture.left_out)}{ended}" == expected, played.result
    assert {part.reason for part in played.capture.left_out} <= {"side_call", "constrained"}
    if len(played.main) > 1 and scenario != "overflow":
        assert PRINTED in played.prompts[-1]
    if len(played.main) > 1:
        assert ANSWER in played.text
    if scenario == "parallel":
        assert "second-9" in played.prompts[-1]
    if scenario == "lost":
        assert played.num_requests == len(played.record) + 1


@pytest.mark.harness
async def test_an_answer_that_a_harness_made_up_is_context(model_folder: Path) -> None:
    played = await SCENARIOS["plain"](HARNESSES["qwen-code"], model_folder)
    made_up = "<|im_start|>assistant\nGot it. Thanks for the context!<|im_end|>"
    assert all(made_up in prompt for prompt in played.prompts)
    (segment,) = played.capture.segments
    assert segment.num_sampled == sum(len(reply.token_ids) for _, reply in played.record)
