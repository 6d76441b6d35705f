"""From a request to its answer: the prompt is prepared, generated from, parsed and committed.

In: a `Call`, whichever way it came. Out: an `Answer`, whose samples the forest holds. Knows no
connections, and not when a session ends.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import Factory, define, field

from molt_core.api.engine import GenerateRequest, Generation
from molt_core.api.gateway import SessionRequest
from molt_core.errors import first_cause
from molt_plugin_gateway.capture.forest import Forest, Prepared
from molt_plugin_gateway.exchange import Answer, BadRequest, Call, ContextOverflow, Usage
from molt_plugin_gateway.replies import Model, num_reasoning_tokens, read_reply, reply_text
from molt_plugin_gateway.wires import WIRES

THREAD_CHARS: Final = 50_000
"""Conversations longer than this are rendered and encoded in a thread, for the sake of the other sessions."""


@define(eq=False)
class Work:
    """An answer in the making."""

    answer_id: str = Factory(lambda: secrets.token_hex(12))
    created_s: int = Factory(lambda: int(time.time()))
    admitted: asyncio.Future[None] = Factory(lambda: asyncio.get_running_loop().create_future())
    """Done when the request turned out to be sound, and in any case when `task` is done."""
    task: asyncio.Task[Answer] = field(init=False)
    """Raises BadRequest; is cancelled when the session closes."""


class Sampling:
    """What one rollout samples."""

    def __init__(self, request: SessionRequest, model: Model) -> None:
        self.forest = Forest(model.template, max_length=model.max_length)
        self.overflowed = False
        """The last prompt did not fit."""
        self._request = request
        self._model = model
        self._num_generations = 0

    async def answer(self, call: Call, work: Work, *, most_tokens: int | None) -> Answer:
        """
        Args:
            most_tokens: that the session has left.

        Raises:
            BadRequest: the request can't be answered.
            RunError: the engine is lost.
        """
        try:
            prepared = await self._prepare(call, opening=self._model.parser.opening(call.tool_choice))
        except ContextOverflow:
            self.overflowed = True
            raise
        requests = [self._engine_request(call, prepared, most_tokens) for _ in range(call.n)]
        work.admitted.set_result(None)
        return self._commit(call, work, prepared, await self._generate(requests))

    async def count_tokens(self, call: Call) -> int:
        """Tokens of the prompt that this request would be. Raises BadRequest where it can't be answered."""
        try:
            return len((await self._prepare(call, opening="")).token_ids)
        except ContextOverflow as overflow:
            return overflow.num_tokens

    async def judge(
        self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, temperature: float
    ) -> str:
        """A reply of which nothing is recorded. Raises BadRequest."""
        model = self._model
        turns = WIRES["/chat/completions"]().read({"messages": messages}, {}).turns
        prompt = model.template.render(turns, (), generation_prompt=True)
        tail = prompt.removeprefix(model.template.render(turns, (), generation_prompt=False))
        request = GenerateRequest(
            request_id=self._next_id(), token_ids=model.template.encode(prompt), max_tokens=max_tokens,
            temperature=temperature, seed=self._request.seed,
        )  # fmt: skip
        generation = await self._request.generate(request)
        return model.parser.parse(reply_text(model, generation), (), prompt_tail=tail).text

    async def _prepare(self, call: Call, *, opening: str) -> Prepared:
        if sum(len(turn.text) for turn in call.turns) > THREAD_CHARS:
            return await asyncio.to_thread(self.forest.prepare, call, opening=opening)
        return self.forest.prepare(call, opening=opening)

    def _engine_request(self, call: Call, prepared: Prepared, most_tokens: int | None) -> GenerateRequest:
        run = self._request
        room = self._model.max_length - len(prepared.token_ids)
        limits = (call.max_tokens, run.max_tokens, most_tokens, room)
        return GenerateRequest(
            request_id=self._next_id(), token_ids=prepared.token_ids.tolist(),
            max_tokens=min(limit for limit in limits if limit is not None), temperature=run.temperature,
            # equal prompts are common here and must not be answered with equal samples
            seed=random.Random(f"{run.seed}/{self._num_generations}").getrandbits(31),
            stop=call.stop, json_schema=call.json_schema, top_logprobs=run.top_logprobs,
        )  # fmt: skip

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
    ) -> Answer:
        """Without a pause, so that a session that closes holds all of an answer's samples or none."""
        model, tail = self._model, prepared.prompt_tail
        choices = [read_reply(model, call, generation, prompt_tail=tail) for generation in generations]
        replies = list(zip(generations, (choice.turn for choice in choices), strict=True))
        sample_ids = tuple(self.forest.commit(prepared, generation, turn) for generation, turn in replies)
        self.overflowed = False
        usage = Usage(
            prompt_tokens=len(prepared.token_ids),
            completion_tokens=sum(len(generation.token_ids) for generation in generations),
            reasoning_tokens=sum(num_reasoning_tokens(model, each, turn.reasoning) for each, turn in replies),
            cached_tokens=prepared.num_matched,
        )
        return Answer(
            id=work.answer_id, created_s=work.created_s, model=call.model, choices=tuple(choices), usage=usage,
            sample_ids=sample_ids,
        )  # fmt: skip

    def _next_id(self) -> str:
        self._num_generations += 1
        return f"{self._request.rollout_id}/{self._num_generations}"
