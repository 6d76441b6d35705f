"""Random sessions over all templates: whatever clients do, each sampled token is kept once, behind its own prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, evolve, field
from capture_kit import RUN, Recorder, reserialised, result, run, said, system, user
from hypothesis import given, settings
from hypothesis import strategies as st
from molt_plugin_gateway.capture.forest import Prepared
from molt_plugin_gateway.exchange import Tool, Turn
from template_kit import TEMPLATES

MORE = Tool(name="more", description="", parameters={"type": "object"})
TEXTS = ("a", " a\n", "hello there", "", "</s>", "<|im_start|>")
REASONINGS = (None, "a", "Let me think.\n ")
ARGUMENTS = ('{"cmd":  "ls"}', '{"cmd": "l', "")

ECHOES: tuple[Callable[[Turn], Turn | None], ...] = (
    lambda turn: turn,
    lambda turn: turn,
    lambda turn: evolve(turn, reasoning=None),
    lambda turn: evolve(turn, content=(turn.text.strip(),)),
    lambda turn: evolve(turn, content=(*turn.text,)),
    lambda turn: reserialised(turn) if _is_json(turn) else turn,
    # from here on another turn than was sampled
    lambda turn: evolve(turn, content=(turn.text + " edited",)),
    lambda turn: evolve(turn, tool_calls=tuple(evolve(call, name="invalid") for call in turn.tool_calls)),
    lambda turn: said(turn.text + "".join(call.arguments for call in turn.tool_calls)),
    lambda turn: None,
)


def _is_json(turn: Turn) -> bool:
    return all(call.arguments == ARGUMENTS[0] for call in turn.tool_calls)


@define
class Agent:
    """One conversation, as its client keeps it."""

    turns: list[Turn]
    name: str = ""
    tools: tuple[Tool, ...] = (RUN,)


@define
class Waiting:
    """A request that the engine has."""

    agent: Agent
    turns: list[Turn]
    prepared: Prepared
    version: int
    """Of the weights, when it began."""


@define
class Harness:
    """Agents that share a session. Each action takes two free numbers and does what some client does."""

    recorder: Recorder
    agents: list[Agent] = field(factory=lambda: [Agent([user("q")])])
    waiting: list[Waiting] = field(factory=list)
    last: Waiting | None = None
    num_calls: int = 0

    def opens(self, this: int, that: int) -> None:
        # few texts, so that conversations often begin alike
        turns = [system("s"), user("q")] if this % 2 else [user("q")]
        self.agents.append(Agent(turns, name=("", "sub")[that % 2]))

    def branches(self, this: int, that: int) -> None:
        agent = self._agent(this)
        self.agents.append(evolve(agent, turns=agent.turns[: 1 + that % len(agent.turns)]))

    def asks(self, this: int, that: int) -> None:
        agent = self._agent(this)
        self._send(agent, agent.turns, opening="" if that % 4 else "<tool_call>")

    def repeats(self, this: int, that: int) -> None:
        if self.last:
            self._send(self.last.agent, self.last.turns)

    def asks_aside(self, this: int, that: int) -> None:
        agent = self._agent(this)
        self._send(evolve(agent, tools=()), agent.turns, json_schema="{}" if that % 2 else None)

    def fails(self, this: int, that: int) -> None:
        if self.waiting:
            del self.waiting[this % len(self.waiting)]

    def gets_answer(self, this: int, that: int) -> None:
        if not self.waiting:
            return
        done = self.waiting.pop(this % len(self.waiting))
        for number in range(2 if that % 7 == 0 else 1):
            reply = self._reply(this + number, that)
            self.recorder.finish(
                done.prepared,
                reply,
                end=None if that % 5 else "",
                delivered=that % 6 > 0,
                version=done.version,
            )
        echo = ECHOES[(this + that) % len(ECHOES)](reply)
        if done.agent.turns == done.turns and echo is not None:
            done.agent.turns.append(echo)
            results = [result(call.id, f"r{number}") for number, call in enumerate(echo.tool_calls)]
            done.agent.turns += results[:: 1 if that % 2 else -1]

    def speaks(self, this: int, that: int) -> None:
        turns = (user("go on"), user("two ", "blocks"), said("Got it."), system("Note."))
        self._agent(this).turns.append(turns[that % len(turns)])

    def compacts(self, this: int, that: int) -> None:
        self._agent(this).turns[1:] = [user("Summary.")]

    def gets_tools(self, this: int, that: int) -> None:
        self._agent(this).tools = ((RUN,), (RUN, MORE), ())[that % 3]

    def gets_weights(self, this: int, that: int) -> None:
        self.recorder.version += 1

    def _agent(self, number: int) -> Agent:
        return self.agents[number % len(self.agents)]

    def _send(self, agent: Agent, turns: list[Turn], **how: Any) -> None:
        prepared = self.recorder.prepare(turns, agent.tools, conversation=agent.name, **how)
        self.last = Waiting(agent, list(turns), prepared, self.recorder.version)
        self.waiting.append(self.last)

    def _reply(self, this: int, that: int) -> Turn:
        calls = []
        for _ in range((0, 0, 1, 2)[this % 4]):
            self.num_calls += 1
            calls.append(run(f"c{self.num_calls}", ARGUMENTS[that % len(ARGUMENTS)]))
        return said(TEXTS[that % len(TEXTS)], *calls, reasoning=REASONINGS[this % len(REASONINGS)])


ACTIONS = (
    Harness.asks, Harness.asks, Harness.gets_answer, Harness.gets_answer, Harness.gets_answer, Harness.speaks,
    Harness.opens, Harness.branches, Harness.repeats, Harness.asks_aside, Harness.fails, Harness.compacts,
    Harness.gets_tools, Harness.gets_weights,
)  # fmt: skip
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 59), st.integers(0, 59)), min_size=5, max_size=40
)


@pytest.mark.parametrize("family", TEMPLATES)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_each_sampled_token_is_kept_once_behind_the_prompt_it_was_sampled_from(
    family: str, steps: list[tuple[Callable[[Harness, int, int], None], int, int]]
) -> None:
    recorder = Recorder(family)
    harness = Harness(recorder)
    for action, this, that in steps:
        action(harness, this, that)
    # `capture` checks it all
    everything = recorder.capture(orphans="train", side_calls="train")
    assert {each.reason for each in everything.left_out} <= {"constrained"}
    strict = recorder.capture(orphans="leave-out", side_calls="leave-out")
    assert len(strict.left_out) >= len(everything.left_out)


@pytest.mark.parametrize("family", TEMPLATES)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_prompts_say_the_conversation(
    family: str, steps: list[tuple[Callable[[Harness, int, int], None], int, int]]
) -> None:
    """An extended prompt ends as the rendered conversation does after the reply, and no question is lost."""
    harness = Harness(Recorder(family))
    template = harness.recorder.template
    for action, this, that in steps:
        action(harness, this, that)
        if harness.last is None or action not in (Harness.asks, Harness.repeats):
            continue
        prepared, turns, tools = harness.last.prepared, harness.last.turns, harness.last.agent.tools
        whole = template.render(turns, tools, generation_prompt=True)
        prompt = template.decode(prepared.token_ids.tolist())
        after_reply = whole[whole.rfind(template.end_texts[0]) :] if len(turns) > 1 else whole
        assert after_reply.removeprefix(template.end_texts[0]) in prompt
        for turn in turns:
            if turn.role == "user":
                assert turn.text in prompt
