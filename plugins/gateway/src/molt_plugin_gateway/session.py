"""One rollout's session: who asks, what is in the making, and how it ends.

In: a `Call` from a wire or from `chat`. Out: an `Answer`, and at `close` the capture. A generation
belongs to the session and not to the connection that asked for it: it goes on when a client leaves,
and ends when the session is closed. Knows no HTTP.

When the engine is lost, or a part of the gateway has a defect, `failed` returns why and requests wait
for the session's end: agents repeat failed requests many times, and a dead rollout must not look
like a finished one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve

from molt_core.api.agent import ChatReply, ToolCall
from molt_core.api.gateway import Capture, SessionRequest
from molt_plugin_gateway.capture.capture import capture
from molt_plugin_gateway.exchange import Answer, BadRequest, Call, ContextOverflow
from molt_plugin_gateway.limits import Limits
from molt_plugin_gateway.replies import Model
from molt_plugin_gateway.retries import Attempt, Attempts
from molt_plugin_gateway.routing import closed, new_key, new_prefix
from molt_plugin_gateway.sampling import Sampling, Work
from molt_plugin_gateway.spec import GatewayOptions
from molt_plugin_gateway.wires import WIRES

MODEL: Final = "policy"
_NO_ROOM: Final = ChatReply(
    text="", reasoning="", tool_calls=(), finish_reason="length", num_tokens=0, sample_id=-1
)
_log = logging.getLogger(__name__)


class GatewaySession:
    """See `molt_core.api.gateway.RecordedSession`."""

    model = MODEL

    def __init__(
        self, request: SessionRequest, *, model: Model, options: GatewayOptions, origin: str,
        on_close: Callable[[GatewaySession], None],
    ) -> None:  # fmt: skip
        """`origin` is scheme, host and port of the server."""
        self.prefix = new_prefix()
        self.api_key = new_key()
        self.anthropic_base_url = f"{origin}/s/{self.prefix}"
        self.base_url = f"{self.anthropic_base_url}/v1"
        self._rollout_id = request.rollout_id
        self._options = options
        self._on_close = on_close
        self._sampling = Sampling(request, model)
        self._attempts: Attempts[Work] = Attempts()
        self._limits = Limits(
            max_requests=options.max_requests,
            max_tokens=options.max_session_tokens,
            max_s=options.max_session_s,
        )
        self._opened_s = time.monotonic()
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._warned: set[str] = set()
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._closed = False
        self._capture: Capture | None = None

    @property
    def num_samples(self) -> int:
        return len(self._sampling.forest.samples)

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
    ) -> ChatReply:  # fmt: skip
        body = {"messages": list(messages), "tools": list(tools), "max_tokens": max_tokens}
        try:
            answer = await self._start(WIRES["/chat/completions"]().read(body, {})).task
        except ContextOverflow:
            return _NO_ROOM
        except BadRequest as problem:
            raise ValueError(problem.message) from problem
        self._mark_delivered(answer)
        (choice,), (sample_id,) = answer.choices, answer.sample_ids
        turn = choice.turn
        calls = (ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in turn.tool_calls)
        return ChatReply(
            text=turn.text, reasoning=turn.reasoning or "", tool_calls=tuple(calls),
            finish_reason=choice.finish_reason, num_tokens=answer.usage.completion_tokens, sample_id=sample_id,
        )  # fmt: skip

    async def judge(
        self, messages: str | Sequence[Mapping[str, Any]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> str:
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        try:
            return await self._sampling.judge(given, max_tokens=max_tokens, temperature=temperature)
        except BadRequest as problem:
            raise ValueError(problem.message) from problem

    async def failed(self) -> BaseException:
        return await asyncio.shield(self._failure)

    async def close(self) -> Capture:
        self._closed = True
        self._on_close(self)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._capture is None:
            options, sampling = self._options, self._sampling
            made = capture(sampling.forest, orphans=options.orphans, side_calls=options.side_calls)
            self._capture = evolve(made, truncated=made.truncated or sampling.overflowed)
        return self._capture

    def request(self, call: Call, key: str) -> Attempt[Work]:
        """The attempt at an answer that this request begins or joins; `key` is equal for equal requests.

        Its owner reports what becomes of it with `delivered` or `gone`.
        """
        if self._closed:
            raise closed()
        joined = self._attempts.join(key, retried=call.hints.retry_count > 0)
        if joined is not None:
            return joined
        attempt = self._attempts.begin(key, self._start(call))

        def ended(task: asyncio.Task[Answer]) -> None:
            if task.cancelled() or task.exception() is not None:
                self._attempts.end(attempt)

        attempt.work.task.add_done_callback(ended)
        return attempt

    def delivered(self, attempt: Attempt[Work]) -> None:
        self._attempts.end(attempt)
        self._mark_delivered(attempt.work.task.result())

    def gone(self, attempt: Attempt[Work], connection: int) -> None:
        self._attempts.gone(attempt, connection)

    async def count_tokens(self, call: Call) -> int:
        """Tokens of the prompt that this request would be. Raises BadRequest where it can't be answered."""
        return await self._sampling.count_tokens(call)

    def fail(self, error: BaseException) -> None:
        """The session can't go on. The first reason counts."""
        if not self._failure.done():
            self._failure.set_result(error)

    def _start(self, call: Call) -> Work:
        if self._closed:
            raise closed()
        work = Work()
        work.task = asyncio.create_task(self._answer(call, work))
        self._tasks.add(work.task)

        def ended(task: asyncio.Task[Answer]) -> None:
            self._tasks.discard(task)
            if not work.admitted.done():
                work.admitted.set_result(None)
            # nobody may be left to ask, and asyncio complains of errors that nobody saw
            if not task.cancelled():
                task.exception()

        work.task.add_done_callback(ended)
        return work

    async def _answer(self, call: Call, work: Work) -> Answer:
        try:
            left = self._limits.admit(call.n, age_s=time.monotonic() - self._opened_s)
            self._warn(call.ignored)
            answer = await self._sampling.answer(call, work, most_tokens=left)
            self._limits.sampled(answer.usage.completion_tokens)
            return answer
        except RecursionError as error:
            raise BadRequest("The request is nested too deeply.") from error
        except BadRequest:
            raise
        # the engine is lost, or something of ours is broken, and either ends the session: see above
        except Exception as error:  # noqa: BLE001
            self.fail(error)
            until_closed: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            return await until_closed

    def _mark_delivered(self, answer: Answer) -> None:
        for sample_id in answer.sample_ids:
            self._sampling.forest.delivered(sample_id)

    def _warn(self, ignored: Sequence[str]) -> None:
        new = [name for name in ignored if name not in self._warned]
        if new and not self._warned:
            _log.warning(
                "rollout %s: %s of a request %s ignored: sampling follows the run. Said once per session.",
                self._rollout_id, ", ".join(new), "is" if len(new) == 1 else "are",
            )  # fmt: skip
        self._warned.update(new)
