"""A gateway at our own protocol whose tokens are characters: for tests of agents and environments.

Replies come from the engine behind it, e.g. a `FakeEngine` with a script. A conversation that
goes on where an earlier one ended extends its segment; any other opens a new one. There is no
HTTP, and no tools, reasoning or retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, frozen

from molt_core.api.agent import ChatReply, text_of
from molt_core.api.engine import GenerateRequest, Generation
from molt_core.api.gateway import Capture, GatewayContext, Place, SessionRequest, recorded
from molt_core.errors import RunError
from molt_core.experience import LeftOut, Segment

Message = Mapping[str, Any]


def render(messages: Sequence[Message]) -> list[int]:
    """`<role>text` of each message and `<assistant>`, a token for each character."""
    told = "".join(f"<{message['role']}>{text_of(message.get('content'))}" for message in messages)
    return [ord(letter) for letter in f"{told}<assistant>"]


def text(token_ids: Sequence[int]) -> str:
    """Characters of the tokens; 0 is the end token."""
    return "".join(chr(token) for token in token_ids if token)


@define(eq=False)
class _Path:
    """One segment as it grows."""

    messages: list[Message]
    token_ids: list[int]


@frozen(eq=False)
class _Sample:
    path: _Path
    start: int
    """Place of its first token."""
    generation: Generation

    @property
    def end(self) -> int:
        return self.start + len(self.generation.token_ids)


class FakeSession:
    """Of a `FakeGateway`."""

    base_url = "http://127.0.0.1:9/s/fake/v1"
    anthropic_base_url = "http://127.0.0.1:9/s/fake"
    api_key = "fake"
    model = "policy"

    def __init__(self, request: SessionRequest, max_length: int, left_out: Callable[[int], str]) -> None:
        self.request = request
        self.closed = False
        self._max_length = max_length
        self._left_out = left_out
        self._paths: list[_Path] = []
        self._samples: list[_Sample] = []
        self._truncated = False
        self._num_calls = 0
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    @property
    def num_samples(self) -> int:
        return len(self._samples)

    async def chat(
        self, messages: Sequence[Message], *, tools: Sequence[Message] = (), max_tokens: int | None = None
    ) -> ChatReply:
        if self.closed:
            raise ValueError("the session is closed")
        path, prompt = self._path(list(messages))
        self._truncated = len(prompt) >= self._max_length
        if self._truncated:
            return ChatReply(
                text="", reasoning="", tool_calls=(), finish_reason="length", num_tokens=0, sample_id=-1
            )
        limit = min(max_tokens or self.request.max_tokens, self._max_length - len(prompt))
        generation = await self._generate(prompt, limit, self.request.temperature)
        path.token_ids = [*prompt, *generation.token_ids.tolist()]
        self._samples.append(_Sample(path, len(prompt), generation))
        self._truncated = generation.finish_reason == "length"
        reply = ChatReply(
            text=text(generation.token_ids.tolist()),
            reasoning="",
            tool_calls=(),
            finish_reason=generation.finish_reason,
            num_tokens=len(generation.token_ids),
            sample_id=len(self._samples) - 1,
        )
        path.messages = [*messages, reply.message]
        if path not in self._paths:
            self._paths.append(path)
        return reply

    async def judge(
        self, messages: str | Sequence[Message], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> str:
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        generation = await self._generate(render(asked), max_tokens, temperature)
        return text(generation.token_ids.tolist())

    async def failed(self) -> BaseException:
        return await asyncio.shield(self._failure)

    async def close(self) -> Capture:
        self.closed = True
        kept = {n: one for n, one in enumerate(self._samples) if not self._left_out(n)}
        paths = [path for path in self._paths if any(one.path is path for one in kept.values())]
        last = self._paths[-1] if self._paths else None
        return Capture(
            segments=tuple(_segment([one for one in kept.values() if one.path is path]) for path in paths),
            left_out=tuple(
                LeftOut(reason=self._left_out(n), segment=_segment([one]))
                for n, one in enumerate(self._samples)
                if n not in kept
            ),
            ends={n: Place(segment=paths.index(one.path), token=one.end - 1) for n, one in kept.items()},
            truncated=self._truncated,
            prompt_text=text_of(last.messages[0].get("content")) if last else "",
            reply_text=text_of(last.messages[-1].get("content")) if last else "",
            info={"samples": float(len(self._samples))},
        )

    def _path(self, messages: list[Message]) -> tuple[_Path, list[int]]:
        for path in self._paths:
            known = len(path.messages)
            if messages[:known] == path.messages:
                return path, [*path.token_ids, *render(messages[known:])]
        return _Path(messages, []), render(messages)

    async def _generate(self, prompt: list[int], max_tokens: int, temperature: float) -> Generation:
        self._num_calls += 1
        request = GenerateRequest(
            request_id=f"{self.request.rollout_id}/{self._num_calls}", token_ids=prompt, max_tokens=max_tokens,
            temperature=temperature, seed=self.request.seed, top_logprobs=self.request.top_logprobs,
        )  # fmt: skip
        try:
            return await self.request.generate(request)
        except RunError as error:
            if not self._failure.done():
                self._failure.set_result(error)
            raise


def _segment(samples: Sequence[_Sample]) -> Segment:
    """Of one path up to the last of these samples."""
    last = samples[-1]
    return recorded(last.path.token_ids[: last.end], [(one.start, one.generation) for one in samples])


class FakeGateway:
    """Opens `FakeSession`s, which are kept in `sessions`.

    Args:
        left_out: from sample_id to the reason for which it does not train; empty: it trains.
    """

    def __init__(self, max_length: int = 4096, left_out: Callable[[int], str] = lambda sample: "") -> None:
        self.sessions: list[FakeSession] = []
        self.running = False
        self._max_length = max_length
        self._left_out = left_out

    @classmethod
    def from_plan(cls, _options: object, context: GatewayContext) -> FakeGateway:
        """As a factory of a spec."""
        return cls(context.max_length)

    async def start(self) -> None:
        self.running = True

    def open(self, request: SessionRequest) -> FakeSession:
        self.sessions.append(FakeSession(request, self._max_length, self._left_out))
        return self.sessions[-1]

    async def stop(self) -> None:
        self.running = False
