"""One rollout's session: each request is prepared, generated, parsed and committed, whichever way it came.

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
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import Factory, define, evolve, field, frozen

from molt_core.api.agent import ChatReply
from molt_core.api.agent import ToolCall as AgentToolCall
from molt_core.api.engine import GenerateRequest, Generation
from molt_core.api.gateway import Capture, SessionRequest
from molt_core.errors import first_cause
from molt_plugin_gateway.capture.capture import capture
from molt_plugin_gateway.capture.forest import Forest, Prepared
from molt_plugin_gateway.exchange import Answer, BadRequest, Call, ContextOverflow, Tool, Usage
from molt_plugin_gateway.limits import Limits
from molt_plugin_gateway.replies import Model, num_reasoning_tokens, read_reply, reply_text
from molt_plugin_gateway.retries import Attempt, Attempts
from molt_plugin_gateway.routing import closed, new_key, new_prefix
from molt_plugin_gateway.spec import GatewayOptions
from molt_plugin_gateway.wires import WIRES

MODEL: Final = "policy"
THREAD_CHARS: Final = 50_000
"""Conversations longer than this are rendered and encoded in a thread, for the sake of the other sessions."""

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class Sampled:
    answer: Answer
    sample_ids: tuple[int, ...]
    num_tokens: int


@define(eq=False)
class Work:
    """An answer in the making."""

    answer_id: str = Factory(lambda: secrets.token_hex(12))
    created_s: int = Factory(lambda: int(time.time()))
    admitted: asyncio.Event = Factory(asyncio.Event)
    """Set when the request turned out to be sound, and in any case when `task` is done."""
    task: asyncio.Task[Sampled] = field(init=False)
    """Raises BadRequest; is cancelled when the session closes."""


class GatewaySession:
    """See `molt_core.api.gateway.RecordedSession`."""

    def __init__(
        self, request: SessionRequest, *, model: Model, options: GatewayOptions, origin: str,
        on_close: Callable[[GatewaySession], None],
    ) -> None:  # fmt: skip
        """`origin` is scheme, host and port of the server."""
        self.prefix = new_prefix()
        self._key = new_key()
        self._origin = origin
        self._request = request
        self._model = model
        self._options = options
        self._on_close = on_close
        self._forest = Forest(model.template, max_length=model.max_length)
        self._attempts: Attempts[Work] = Attempts()
        self._limits = Limits(
            max_requests=options.max_requests,
            max_tokens=options.max_session_tokens,
            max_s=options.max_session_s,
        )
        self._opened_s = time.monotonic()
        self._tasks: set[asyncio.Task[Sampled]] = set()
        self._num_generations = 0
        self._warned: set[str] = set()
        self._overflowed = False
        self._failure: BaseException | None = None
        self._has_failed = asyncio.Event()
        self._closed = False
        self._capture: Capture | None = None

    @property
    def base_url(self) -> str:
        return f"{self.anthropic_base_url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        return f"{self._origin}/s/{self.prefix}"

    @property
    def api_key(self) -> str:
        return self._key

    @property
    def model(self) -> str:
        return MODEL

    @property
    def num_samples(self) -> int:
        return len(self._forest.samples)

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
    ) -> ChatReply:  # fmt: skip
        body = {"messages": list(messages), "tools": list(tools), "max_tokens": max_tokens}
        try:
            call = evolve(WIRES["/chat/completions"]().read(body, {}), wire="direct")
            sampled = await self._start(call).task
        except ContextOverflow:
            return ChatReply(
                text="", reasoning="", tool_calls=(), finish_reason="length", num_tokens=0, sample_id=-1
            )
        except BadRequest as problem:
            raise ValueError(problem.message) from problem
        self._mark_delivered(sampled)
        (choice,) = sampled.answer.choices
        return ChatReply(
            text=choice.turn.text,
            reasoning=choice.turn.reasoning or "",
            tool_calls=tuple(
                AgentToolCall(id=call.id, name=call.name, arguments=call.arguments)
                for call in choice.turn.tool_calls
            ),
            finish_reason=choice.finish_reason,
            num_tokens=sampled.num_tokens,
            sample_id=sampled.sample_ids[0],
        )

    async def judge(
        self, messages: str | Sequence[Mapping[str, Any]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> str:
        template = self._model.template
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        try:
            turns = WIRES["/chat/completions"]().read({"messages": given}, {}).turns
            prompt = template.render(turns, (), generation_prompt=True)
            tail = prompt.removeprefix(template.render(turns, (), generation_prompt=False))
        except BadRequest as problem:
            raise ValueError(problem.message) from problem
        request = GenerateRequest(
            request_id=self._next_id(), token_ids=template.encode(prompt), max_tokens=max_tokens,
            temperature=temperature, seed=self._request.seed,
        )  # fmt: skip
        generation = await self._request.generate(request)
        return self._model.parser.parse(reply_text(self._model, generation), (), prompt_tail=tail).text

    async def failed(self) -> BaseException:
        await self._has_failed.wait()
        assert self._failure is not None
        return self._failure

    async def close(self) -> Capture:
        self._closed = True
        self._on_close(self)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._capture is None:
            made = capture(self._forest, orphans=self._options.orphans, side_calls=self._options.side_calls)
            self._capture = evolve(made, truncated=made.truncated or self._overflowed)
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

        def ended(task: asyncio.Task[Sampled]) -> None:
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
        """Tokens of the prompt that this request would be.

        Raises:
            BadRequest: the request can't be answered.
        """
        try:
            return len((await self._prepare(call, opening="")).token_ids)
        except ContextOverflow as overflow:
            return overflow.num_tokens

    def fail(self, error: BaseException) -> None:
        """The session can't go on. The first reason counts."""
        if self._failure is None:
            self._failure = error
            self._has_failed.set()

    def _start(self, call: Call) -> Work:
        if self._closed:
            raise closed()
        work = Work()
        work.task = asyncio.create_task(self._sample(call, work))
        self._tasks.add(work.task)

        def ended(task: asyncio.Task[Sampled]) -> None:
            self._tasks.discard(task)
            work.admitted.set()
            # nobody may be left to ask, and asyncio complains of errors that nobody saw
            if not task.cancelled():
                task.exception()

        work.task.add_done_callback(ended)
        return work

    async def _sample(self, call: Call, work: Work) -> Sampled:
        try:
            left = self._limits.admit(call.n, age_s=time.monotonic() - self._opened_s)
            self._warn(call.ignored)
            prepared = await self._prepare(call, opening=self._opening(call))
            requests = self._requests(call, prepared, left)
            work.admitted.set()
            generations = await self._generate(requests)
            return self._commit(call, work, prepared, generations)
        except ContextOverflow:
            self._overflowed = True
            raise
        except RecursionError as error:
            raise BadRequest("The request is nested too deeply.") from error
        except BadRequest:
            raise
        # the engine is lost, or something of ours is broken, and either ends the session: see above
        except Exception as error:  # noqa: BLE001
            self.fail(error)
            until_closed: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
            return await until_closed

    async def _prepare(self, call: Call, *, opening: str) -> Prepared:
        num_chars = sum(len(part) for turn in call.turns for part in turn.content if isinstance(part, str))
        if num_chars > THREAD_CHARS:
            return await asyncio.to_thread(self._forest.prepare, call, opening=opening)
        return self._forest.prepare(call, opening=opening)

    def _opening(self, call: Call) -> str:
        if call.tool_choice in ("auto", "none"):
            return ""
        tool = call.tool_choice if isinstance(call.tool_choice, Tool) else None
        opening = self._model.parser.opening(tool)
        if not opening:
            raise BadRequest(
                "Only tool_choice 'auto' and 'none' can be honoured: how a tool call begins is not known for this "
                "model (--gateway.tool-parser).",
                param="tool_choice",
            )
        return opening

    def _requests(self, call: Call, prepared: Prepared, left: int | None) -> list[GenerateRequest]:
        request = self._request
        wanted = (call.max_tokens, request.max_tokens, left, self._model.max_length - len(prepared.token_ids))
        return [
            GenerateRequest(
                request_id=self._next_id(), token_ids=prepared.token_ids.tolist(),
                max_tokens=min(number for number in wanted if number is not None),
                temperature=request.temperature,
                # equal prompts are common here and must not be answered with equal samples
                seed=random.Random(f"{request.seed}/{self._num_generations}").getrandbits(31),
                stop=call.stop, json_schema=call.json_schema, top_logprobs=request.top_logprobs,
            )
            for _ in range(call.n)
        ]  # fmt: skip

    async def _generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        async def one(request: GenerateRequest) -> Generation:
            return await self._request.generate(request)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(request)) for request in requests]
        except ExceptionGroup as errors:
            error = first_cause(errors)
            raise BadRequest(str(error)) if isinstance(error, ValueError) else error from errors
        return [task.result() for task in tasks]

    def _commit(
        self, call: Call, work: Work, prepared: Prepared, generations: Sequence[Generation]
    ) -> Sampled:
        """Without a pause, so that a session that closes holds all of an answer's samples or none."""
        model, tail = self._model, prepared.prompt_tail
        choices = [read_reply(model, call, generation, prompt_tail=tail) for generation in generations]
        replies = list(zip(generations, (choice.turn for choice in choices), strict=True))
        sample_ids = tuple(self._forest.commit(prepared, generation, turn) for generation, turn in replies)
        num_tokens = sum(len(generation.token_ids) for generation in generations)
        self._limits.sampled(num_tokens)
        self._overflowed = False
        usage = Usage(
            prompt_tokens=len(prepared.token_ids),
            completion_tokens=num_tokens,
            reasoning_tokens=sum(num_reasoning_tokens(model, each, turn.reasoning) for each, turn in replies),
            cached_tokens=prepared.num_matched,
        )
        answer = Answer(
            id=work.answer_id, created_s=work.created_s, model=call.model, choices=tuple(choices), usage=usage
        )
        return Sampled(answer=answer, sample_ids=sample_ids, num_tokens=num_tokens)

    def _next_id(self) -> str:
        self._num_generations += 1
        return f"{self._request.rollout_id}/{self._num_generations}"

    def _mark_delivered(self, sampled: Sampled) -> None:
        for sample_id in sampled.sample_ids:
            self._forest.delivered(sample_id)

    def _warn(self, ignored: Sequence[str]) -> None:
        new = [name for name in ignored if name not in self._warned]
        if new and not self._warned:
            _log.warning(
                "rollout %s: %s of a request %s ignored: sampling follows the run. Said once per session.",
                self._request.rollout_id, ", ".join(new), "is" if len(new) == 1 else "are",
            )  # fmt: skip
        self._warned.update(new)
