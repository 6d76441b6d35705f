"""The engine `transformers`: a Hugging Face model in this process, decoded step by step in one thread.

In: token ids. Out: token ids, log-probs and policy versions. The event loop owns requests and
replies; the thread owns model and batch. A weight update runs in that thread too, so it falls
between two steps, and a step stamps its tokens with the version that it ran under: that makes
versions exact.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from molt_core.api.engine import EngineContext, GenerateRequest, Generation, Weights, reply_limit
from molt_core.api.options import NoOptions
from molt_core.api.weights import check_coverage, tensor_shapes
from molt_core.errors import RunError
from molt_plugin_transformers.batch import Batch, LiveSequence
from molt_plugin_transformers.model import Model
from molt_plugin_transformers.text import Text

T = TypeVar("T")


class TransformersEngine:
    """See `molt_core.api.engine.Engine`."""

    def __init__(self, options: NoOptions, context: EngineContext) -> None:
        self._context = context
        self._name = f"engine-{context.index} (transformers, {context.model_folder})"
        self._random = random.Random(f"{context.seed}/{context.index}")
        self._thread: ThreadPoolExecutor | None = None
        self._model: Model | None = None
        self._text = Text(context.model_folder, context.end_token_ids)
        self._batch: Batch | None = None
        self._decoding: asyncio.Task[None] | None = None
        self._arrived: list[LiveSequence] = []
        self._replies: dict[LiveSequence, asyncio.Future[None]] = {}
        self._holding = False
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._updating = asyncio.Lock()
        self._failure: RunError | None = None

    async def start(self) -> None:
        context = self._context
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"engine-{context.index}")
        # set in the thread that computes: OpenMP keeps this number for each thread
        await self._in_thread(torch.set_num_threads, context.num_threads)
        try:
            self._model = await self._in_thread(Model.load, context.model_folder, context.dtype)
        except (OSError, ValueError) as error:
            raise RunError(f"{self._name} could not start: {error}", reason="engine_start") from error
        self._batch = Batch(self._model.module, max_rows=context.max_concurrency)
        self._decoding = asyncio.create_task(self._decode(self._batch))

    async def generate(self, request: GenerateRequest) -> Generation:
        model, _ = self._serving()
        max_tokens = reply_limit(
            request, max_length=self._context.max_length, vocabulary_size=model.vocabulary_size
        )
        seed = self._random.getrandbits(64) if request.seed is None else request.seed
        # in a thread: the first of them reads the tokenizer
        has_stopped = await asyncio.to_thread(self._text.stop_check, request.stop)
        mask_BV = await asyncio.to_thread(self._text.schema_mask, request.json_schema, model.vocabulary_size)
        self._serving()
        sequence = LiveSequence(
            prompt=[int(token) for token in request.token_ids],
            max_tokens=max_tokens,
            temperature=request.temperature,
            random=random.Random(seed),
            has_stopped=has_stopped,
            mask_BV=mask_BV,
            num_top=request.top_logprobs,
        )
        reply = self._replies[sequence] = asyncio.get_running_loop().create_future()
        self._arrived.append(sequence)
        self._work.set()
        try:
            await reply
        finally:
            self._replies.pop(sequence, None)
            sequence.abandoned = True
        return Generation(
            token_ids=sequence.token_ids,
            logprobs=sequence.logprobs,
            versions=sequence.versions,
            finish_reason="stop" if has_stopped(sequence.token_ids) else "length",
            top_ids=sequence.top_ids if request.top_logprobs else None,
            top_logprobs=sequence.top_logprobs if request.top_logprobs else None,
        )

    async def update_weights(self, weights: Weights, *, drain: bool) -> None:
        async with self._updating:
            model, batch = self._serving()
            # a file that does not fit is refused here, before anything has changed
            given = await asyncio.to_thread(tensor_shapes, weights.path)
            check_coverage(model.shapes, given, model.tied)
            self._holding = drain
            try:
                if drain:
                    await self._idle.wait()
                    self._serving()
                await self._in_thread(_replace, model, batch, weights)
            except Exception as error:
                # old and new tensors may be mixed now, so nothing may be sampled from them again
                self._fail(
                    f"{self._name}: the update to version {weights.version} failed and the engine can't "
                    f"be used any more: {error!r}",
                    reason="engine_update",
                )
                raise self._failed() from error
            finally:
                self._holding = False
                self._work.set()

    async def check_health(self) -> None:
        self._serving()

    async def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._decoding is not None:
            self._decoding.cancel()
            await asyncio.wait({self._decoding})
        self._fail(f"{self._name} was stopped", reason="engine_stopped")
        # waits for the step that is running
        await asyncio.to_thread(thread.shutdown)
        self._model = self._batch = None

    async def _decode(self, batch: Batch) -> None:
        try:
            while True:
                arrived: list[LiveSequence] = []
                if not self._holding:
                    arrived, self._arrived = self._arrived, arrived
                if not arrived and not batch.num_unfinished:
                    self._idle.set()
                    self._work.clear()
                    await self._work.wait()
                    continue
                self._idle.clear()
                for sequence in await self._in_thread(batch.step, arrived):
                    reply = self._replies.get(sequence)
                    if reply is not None and not reply.done():
                        reply.set_result(None)
        except Exception as error:  # noqa: BLE001 - a model can raise anything; every waiting request must hear of it
            self._fail(f"{self._name} died: {error!r}", reason="engine_dead")

    async def _in_thread(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    def _serving(self) -> tuple[Model, Batch]:
        if self._failure is not None:
            raise self._failed()
        if self._model is None or self._batch is None:
            raise RunError(f"{self._name} has not been started", reason="engine_stopped")
        return self._model, self._batch

    def _fail(self, message: str, *, reason: str) -> None:
        """The first failure is the one that everyone hears."""
        if self._failure is None:
            self._failure = RunError(message, reason=reason)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(self._failed())
        self._idle.set()

    def _failed(self) -> RunError:
        """A new error for each caller: they raise it in different tasks."""
        assert self._failure is not None
        return RunError(str(self._failure), reason=self._failure.reason)


def _replace(model: Model, batch: Batch, weights: Weights) -> None:
    model.replace_weights(weights.path)
    batch.restart(weights.version)
