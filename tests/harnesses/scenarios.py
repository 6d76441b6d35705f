"""What befalls an episode: each takes a harness and the model's folder, and plays it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tests.harnesses.kit import COMMAND, PRINTED, THOUGHT, Harness, Played, play

Scenario = Callable[[Harness, Path], Awaitable[Played]]


async def plain(harness: Harness, model_folder: Path) -> Played:
    """A tool call, its result, an answer."""
    return await play(harness, model_folder, _two_turns(harness))


async def dropped(harness: Harness, model_folder: Path) -> Played:
    """The connection breaks in the middle of the first answer."""
    return await play(harness, model_folder, _two_turns(harness), breaks="in the answer")


async def lost(harness: Harness, model_folder: Path) -> Played:
    """The connection breaks while the first answer is being sampled."""
    return await play(harness, model_folder, _two_turns(harness), breaks="before it")


async def length(harness: Harness, model_folder: Path) -> Played:
    """The first reply is cut off by the limit on its tokens."""
    return await play(
        harness, model_folder, _in_turn("word " * 300, harness.call(COMMAND), harness.answer), max_tokens=200
    )


async def bad_arguments(harness: Harness, model_folder: Path) -> Played:
    """The first call leaves out what the tool needs."""
    bad = THOUGHT + harness.write(harness.tool, {"wrong": 1})
    return await play(harness, model_folder, _in_turn(bad, harness.call(COMMAND), harness.answer))


async def unknown_tool(harness: Harness, model_folder: Path) -> Played:
    bad = THOUGHT + harness.write("nonesuch", {"command": COMMAND})
    return await play(harness, model_folder, _in_turn(bad, harness.call(COMMAND), harness.answer))


async def empty(harness: Harness, model_folder: Path) -> Played:
    """The first reply is nothing but its end."""
    return await play(harness, model_folder, _in_turn("", harness.call(COMMAND), harness.answer))


async def parallel(harness: Harness, model_folder: Path) -> Played:
    """Two calls in one reply."""
    return await play(
        harness, model_folder, _in_turn(harness.call(COMMAND, "echo second-$((3 * 3))"), harness.answer)
    )


async def overflow(harness: Harness, model_folder: Path) -> Played:
    """The second prompt no longer fits."""
    (first, reply), *_ = (await plain_once(harness, model_folder)).main
    # the result of the tool takes more, and the prompts of two runs differ by less
    max_length = len(first.token_ids) + len(reply.token_ids) + 200
    return await play(
        harness, model_folder, _in_turn(harness.call("seq 300"), harness.answer), max_length=max_length
    )


async def over_limit(harness: Harness, model_folder: Path) -> Played:
    """The session's requests are used up after the first."""
    once = await plain_once(harness, model_folder)
    side_calls = len(once.record) - len(once.main)
    return await play(harness, model_folder, _two_turns(harness), max_requests=1 + side_calls)


SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.__name__: scenario
    for scenario in (
        plain, dropped, lost, length, bad_arguments, unknown_tool, empty, parallel, overflow, over_limit
    )
}  # fmt: skip
_PLAYED: dict[Harness, Played] = {}


async def plain_once(harness: Harness, model_folder: Path) -> Played:
    if harness not in _PLAYED:
        _PLAYED[harness] = await plain(harness, model_folder)
    return _PLAYED[harness]


def _two_turns(harness: Harness) -> Callable[[str, int], str]:
    return lambda prompt, number: harness.answer if PRINTED in prompt else harness.call(COMMAND)


def _in_turn(*replies: str) -> Callable[[str, int], str]:
    return lambda prompt, number: replies[min(number, len(replies) - 1)]
