"""A forest with an engine that answers as it is told and keeps its own record; and the rules of any capture.

Each sampled token has a log-probability of its own, by which it is found again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from molt_plugin_gateway.capture.capture import capture
from molt_plugin_gateway.capture.forest import Forest, Prepared
from molt_plugin_gateway.exchange import Call, Hints, Tool, ToolCall, Turn
from template_kit import FileTemplate

from molt_core.api.engine import Generation
from molt_core.api.gateway import Capture
from molt_core.experience.checks import SEGMENT_CHECKS
from molt_core.experience.segment import Segment

RUN = Tool(name="run", description="Runs a command", parameters={"type": "object"})


def system(text: str) -> Turn:
    return Turn(role="system", content=(text,))


def user(*parts: str) -> Turn:
    return Turn(role="user", content=parts)


def result(call_id: str, text: str = "ok") -> Turn:
    return Turn(role="tool", content=(text,), tool_call_id=call_id)


def said(text: str = "", *calls: ToolCall, reasoning: str | None = None) -> Turn:
    return Turn(role="assistant", content=(text,) if text else (), tool_calls=calls, reasoning=reasoning)


def run(call_id: str, arguments: str = '{"cmd":  "ls"}', name: str = "run") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


class Recorder:
    """One session's forest, and what its engine was given and returned."""

    def __init__(self, family: str = "chatml", max_length: int = 100_000) -> None:
        self.template = FileTemplate(family)
        self.forest = Forest(self.template, max_length=max_length)
        self.version = 0
        self.generated: list[tuple[Prepared, Generation]] = []
        self.num_tokens = 0

    def prepare(
        self, turns: Sequence[Turn], tools: Sequence[Tool] = (), *, opening: str = "", conversation: str = "",
        kind: str = "", json_schema: str | None = None,
    ) -> Prepared:  # fmt: skip
        call = Call(
            turns=tuple(turns),
            tools=tuple(tools),
            json_schema=json_schema,
            hints=Hints(conversation=conversation, kind=kind),
        )
        return self.forest.prepare(call, opening=opening)

    def finish(
        self, prepared: Prepared, reply: Turn, *, end: str | None = None, delivered: bool = True,
        version: int | None = None,
    ) -> int:  # fmt: skip
        """Commit `reply`, sampled as one token a byte; `end=""` is a reply cut off by the length limit."""
        end = self.template.end_texts[0] if end is None else end
        text = f"<think>{reply.reasoning}</think>" if reply.reasoning else ""
        text += reply.text + "".join(f"{call.name}({call.arguments})" for call in reply.tool_calls)
        # an engine returns one token at least
        end = end or ("" if text else self.template.end_texts[0])
        token_ids = self.template.encode_apart(text) + self.template.encode(end)
        first = self.num_tokens + 1
        self.num_tokens += len(token_ids)
        versions = np.full(len(token_ids), self.version)
        versions[: len(versions) // 2] = self.version if version is None else version
        generation = Generation(
            token_ids=np.array(token_ids),
            logprobs=-np.arange(first, first + len(token_ids), dtype=np.float32),
            versions=versions,
            finish_reason="stop" if end else "length",
            top_ids=np.array(token_ids)[:, None] ^ np.arange(2),
            top_logprobs=-np.arange(first, first + len(token_ids))[:, None] - np.array([0.0, 0.5]),
        )
        self.generated.append((prepared, generation))
        sample_id = self.forest.commit(prepared, generation, reply)
        if delivered:
            self.forest.delivered(sample_id)
        return sample_id

    def ask(self, turns: Sequence[Turn], reply: Turn, tools: Sequence[Tool] = (), **how: Any) -> int:
        finishing = {name: how.pop(name) for name in ("end", "delivered") if name in how}
        return self.finish(self.prepare(turns, tools, **how), reply, **finishing)

    def prompt_text(self, sample_id: int) -> str:
        return self.template.decode(self.generated[sample_id][0].token_ids.tolist())

    def extends(self, sample_id: int) -> int | None:
        parent = self.forest.samples[sample_id].parent
        return None if parent is None else parent.sample_id

    def capture(self, **policies: Any) -> Capture:
        captured = capture(self.forest, **policies)
        assert_exact(captured, self.generated)
        return captured


Token = tuple[int, float, int, tuple[int, ...], tuple[float, ...]]


def sampled_of(segment: Segment) -> list[Token]:
    columns = (segment.token_ids, segment.logprobs, segment.versions)
    own = (column[segment.sampled] for column in columns)
    return tokens_of(*own, segment.top_ids, segment.top_logprobs)


def tokens_of(token_ids: Any, logprobs: Any, versions: Any, top_ids: Any, top_logprobs: Any) -> list[Token]:
    tops = (map(tuple, top.tolist()) for top in (top_ids, top_logprobs))
    return list(zip(token_ids.tolist(), logprobs.tolist(), versions.tolist(), *tops, strict=True))


def assert_exact(captured: Capture, generated: Sequence[tuple[Prepared, Generation]]) -> None:
    """Every sampled token is in one place, with its own numbers, behind the prompt it was sampled from."""
    segments = [*captured.segments, *(each.segment for each in captured.left_out)]
    kept = Counter(token for segment in segments for token in sampled_of(segment))
    sampled = Counter(
        token
        for _, generation in generated
        for token in tokens_of(
            generation.token_ids,
            generation.logprobs,
            generation.versions,
            generation.top_ids,
            generation.top_logprobs,
        )
    )
    assert kept == sampled
    for segment in segments:
        assert segment.num_sampled
        for check in SEGMENT_CHECKS:
            assert check(segment), check.__doc__
        position = {value: at for at, value in enumerate(segment.logprobs.tolist()) if value}
        for prepared, generation in generated:
            start = position.get(float(generation.logprobs[0]))
            if start is not None:
                end = start + len(generation.token_ids)
                assert segment.token_ids[:start].tolist() == prepared.token_ids.tolist()
                assert segment.token_ids[start:end].tolist() == generation.token_ids.tolist()
                assert segment.sampled[start:end].all()
    assert sorted([*captured.ends, *_left_out_ids(captured, generated)]) == list(range(len(generated)))
    for sample_id, place in captured.ends.items():
        last = float(generated[sample_id][1].logprobs[-1])
        assert captured.segments[place.segment].logprobs[place.token] == last


def _left_out_ids(captured: Capture, generated: Sequence[tuple[Prepared, Generation]]) -> list[int]:
    by_logprob = {float(generation.logprobs[-1]): number for number, (_, generation) in enumerate(generated)}
    return [by_logprob[float(each.segment.logprobs[-1])] for each in captured.left_out]


def reserialised(turn: Turn, **how: Any) -> Turn:
    """The turn with its arguments written anew, as clients do that parse them."""
    calls = [
        ToolCall(id=call.id, name=call.name, arguments=json.dumps(json.loads(call.arguments), **how))
        for call in turn.tool_calls
    ]
    return Turn(role=turn.role, content=turn.content, reasoning=turn.reasoning, tool_calls=tuple(calls))
