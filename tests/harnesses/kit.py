"""One harness, one script of what the policy says, one episode: real gateway, tokenizer and template, real process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from attrs import Factory, field, frozen
from gateway_kit import Record, assert_exact, running
from molt_plugin_agents.command import CommandAgent
from molt_plugin_agents.spec import CommandOptions
from molt_plugin_gateway.session import GatewaySession
from tokenizers import Tokenizer

from molt_core.api.agent import AgentTask, Result
from molt_core.api.gateway import Capture, SessionRequest
from molt_core.testing.scripted_engine import ScriptedEngine
from tests.harnesses.broken_wire import BrokenWire
from tests.harnesses.install import bin_folder

END_TOKEN_ID: Final = 2
"""<|im_end|> of SmolLM2."""
DRIVERS: Final = Path(__file__).with_name("drivers")
PROMPT: Final = "Find out what echo prints."
COMMAND: Final = "echo molt-$((40 + 2))"
PRINTED: Final = "molt-42"
"""Not in the command: it is in a prompt only if the command has really run."""
THOUGHT: Final = "<think>\nI should run echo.\n \n</think>\n\n"
SAID: Final = "  Let me  run it — ok.\n\n"
ANSWER: Final = "It printed  what I expected."
TIMEOUT_S: Final = 250.0


def tool_call(name: str, arguments: Mapping[str, Any]) -> str:
    """With spaces where no client would write them."""
    written = json.dumps({"name": name, "arguments": arguments}, separators=(",   ", ":  "))
    return f"<tool_call>\n{written}\n</tool_call>"


def python_call(name: str, arguments: Mapping[str, Any]) -> str:
    written = ",  ".join(f"{key} = {value!r}" for key, value in arguments.items())
    return f"<code>\nprint( {name}({written}) )\n</code>"


@frozen(kw_only=True)
class Harness:
    name: str
    """As installed."""
    recipe: str = "plain"
    argv: tuple[str, ...] = ()
    """Default: the recipe's."""
    env: tuple[str, ...] = ()
    tool: str
    """That runs a shell command."""
    arguments: Callable[[str], Mapping[str, Any]] = field(default=lambda command: {"command": command})
    write: Callable[[str, Mapping[str, Any]], str] = tool_call
    """A call of a tool, as the policy writes it."""
    answer: str = ANSWER
    """How the policy ends an episode."""
    at_work: str = field(
        default=Factory(lambda self: f'"name": "{self.tool}", "description"', takes_self=True)
    )
    """In every prompt that is no side call's: the tool is described."""
    on_wire: str = field(default=Factory(lambda self: f'"{self.tool}"', takes_self=True))
    """In every request that is no side call."""

    def call(self, *commands: str, said: str = THOUGHT + SAID) -> str:
        return said + "\n".join(self.write(self.tool, self.arguments(command)) for command in commands)


@frozen(kw_only=True)
class Played:
    result: Result
    capture: Capture
    record: Record
    main: Record
    """Without side calls."""
    prompts: Sequence[str]
    """What the policy was given, in the order of `main`."""
    num_requests: int

    @property
    def shape(self) -> str:
        """`0/1+2`: the segments, each with its samples, numbered as `main` is."""
        numbers = {id(generation): number for number, (_, generation) in enumerate(self.main)}
        segments: dict[int, list[int]] = {}
        for sample_id, place in sorted(self.capture.ends.items()):
            segments.setdefault(place.segment, []).append(numbers[id(self.record[sample_id][1])])
        return "/".join("+".join(map(str, ids)) for _, ids in sorted(segments.items()))

    @property
    def text(self) -> str:
        """What would be graded."""
        return self.capture.reply_text if self.result.text is None else self.result.text


async def play(
    harness: Harness, model_folder: Path, script: Callable[[str, int], str], *, max_length: int = 131_072,
    max_tokens: int = 2048, breaks: Literal["", "in the answer", "before it"] = "", timeout_s: float = TIMEOUT_S,
    **options: Any,
) -> Played:  # fmt: skip
    """Run one episode, and check what holds of any: each sampled token is captured once, nothing is left behind.

    Args:
        script: from a prompt and its number among those that show the harness's tool to what the
            policy says; other prompts are side calls and get a title.
        breaks: where the connection of the first of these breaks.
    """
    num_main = 0

    async def say(prompt: str, number: int) -> str:
        nonlocal num_main
        if harness.at_work not in prompt:
            return '{"title": "Echo"}'
        num_main += 1
        if num_main == 1 and breaks == "before it":
            wire.cut()
            await asyncio.sleep(0.1)
        said = script(prompt, num_main - 1)
        return said.partition("<tool_call>\n")[2] if prompt.endswith("<tool_call>\n") else said

    engine = ScriptedEngine(model_folder, say, end_token_id=END_TOKEN_ID, max_length=max_length)
    async with running(
        model_folder, engine.generate, max_length=max_length, end_token_id=END_TOKEN_ID, **options
    ) as rig:
        session = rig.gateway.open(
            SessionRequest(
                rollout_id="rollout", generate=engine.generate, max_tokens=max_tokens, temperature=1.0, seed=0,
                timeout_s=timeout_s,
            )
        )  # fmt: skip
        origin = session.anthropic_base_url.partition("/s/")[0]
        first = harness.on_wire.encode() if breaks == "in the answer" else b""
        async with BrokenWire(origin, break_first=first) as wire:
            result = await run(harness, _Through(session, origin, wire.origin), timeout_s=timeout_s)
        capture = await session.close()
    assert not session._failure.done()
    assert not _left_behind(session.api_key)
    assert engine.num_in_flight == 0
    assert_exact(capture, engine.record)
    decode = Tokenizer.from_file(str(model_folder / "tokenizer.json")).decode
    texts = [decode(request.token_ids, skip_special_tokens=False) for request, _ in engine.record]
    return Played(
        result=result,
        capture=capture,
        record=engine.record,
        main=[one for one, text in zip(engine.record, texts, strict=True) if harness.at_work in text],
        prompts=[text for text in texts if harness.at_work in text],
        num_requests=wire.num_requests,
    )


async def run(harness: Harness, session: Any, *, timeout_s: float) -> Result:
    """As a rollout runs it: by the agent `command`, in a home and a workspace of its own."""
    path = f"PATH={bin_folder(harness.name)}{os.pathsep}{os.environ['PATH']}"
    options = CommandOptions(recipe=harness.recipe, argv=harness.argv, env=(path, *harness.env), grace_s=1.0)
    messages = ({"role": "user", "content": PROMPT},)
    task = AgentTask(task_id="train/000001", row={}, messages=messages, timeout_s=timeout_s)
    agent = CommandAgent(options)
    try:
        return await agent.run(task, session)
    finally:
        agent.close()


class _Through:
    """A session as it is reached through a proxy."""

    def __init__(self, session: GatewaySession, origin: str, proxy: str) -> None:
        self._session = session
        self.base_url = session.base_url.replace(origin, proxy)
        self.anthropic_base_url = session.anthropic_base_url.replace(origin, proxy)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def _left_behind(key: str) -> list[str]:
    """Processes that know the session's key."""
    found = []
    for variables in Path("/proc").glob("[0-9]*/environ"):
        try:
            if key.encode() in variables.read_bytes():
                found.append(variables.with_name("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
