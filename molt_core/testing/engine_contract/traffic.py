"""Requests to an engine under test, and what transformers would have said in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

import numpy as np
from attrs import evolve

from molt_core.api.engine import Engine, EngineContext, GenerateRequest, Generation, Weights
from molt_core.experience.segment import FloatArray
from molt_core.testing.tiny_model import END_TOKEN_ID, TinyModel

MAX_LENGTH: Final = 512
MAX_CONCURRENCY: Final = 8
MAX_TOP_LOGPROBS: Final = 24
PAUSE_S: Final = 0.05
"""Between two updates with requests in flight, so that tokens are sampled under each."""

_numbers = count()


def context(model: TinyModel, *, index: int = 0) -> EngineContext:
    """The context that the tests expect the engine to have been started with."""
    return EngineContext(
        model_folder=str(model.folder), dtype="float32", max_length=MAX_LENGTH, max_concurrency=MAX_CONCURRENCY,
        seed=0, index=index, num_threads=1, end_token_ids=(END_TOKEN_ID,), top_logprobs=MAX_TOP_LOGPROBS,
    )  # fmt: skip


def request(
    prompt: list[int], *, max_tokens: int = 48, temperature: float = 1.0, seed: int | None = None
) -> GenerateRequest:
    return GenerateRequest(
        request_id=f"request-{next(_numbers)}", token_ids=prompt, max_tokens=max_tokens, temperature=temperature,
        seed=seed,
    )  # fmt: skip


def prompts(num_prompts: int = 8) -> list[list[int]]:
    """Of different lengths, from 3 to 24 tokens, without the end token."""
    rng = np.random.default_rng(0)
    return [rng.integers(1, END_TOKEN_ID, 3 * (number + 1)).tolist() for number in range(num_prompts)]


async def replies(engine: Engine, requests: Iterable[GenerateRequest]) -> list[Generation]:
    """To requests that are made at one time."""
    return await asyncio.gather(*map(engine.generate, requests))


async def busy(engine: Engine) -> list[asyncio.Task[Generation]]:
    """Requests that the engine is answering, and will be for a while: more than it answers at once."""
    asked = [request(prompt, max_tokens=400) for prompt in prompts() * 8]
    tasks = [asyncio.create_task(engine.generate(each)) for each in asked]
    await asyncio.sleep(PAUSE_S)
    # by chance a reply may have ended already
    waiting = [task for task in tasks if not task.done()]
    assert waiting
    return waiting


async def publish(engine: Engine, model: TinyModel, *, drain: bool = False) -> Weights:
    """Update to a version that no test has used, and return its weights."""
    weights = model.weights(model.next_version())
    await engine.update_weights(weights, drain=drain)
    return weights


async def replies_while_updating(
    engine: Engine, model: TinyModel, *, drain: bool, stop: tuple[str, ...] = ()
) -> list[Generation]:
    """Of all prompts, while the weights change, at least once."""
    asked = [
        evolve(request(prompt, max_tokens=200, seed=number), stop=stop)
        for number, prompt in enumerate(prompts())
    ]
    running = asyncio.create_task(replies(engine, asked))
    while not running.done():
        await asyncio.sleep(PAUSE_S)
        await publish(engine, model, drain=drain)
    return await running


def expected(
    model: TinyModel, prompt: list[int], reply: Generation, version: int, *, temperature: float = 1.0
) -> FloatArray:
    """[N, vocabulary] log-probs by transformers for each place of the reply, under one version of the weights."""
    history = np.asarray([*prompt, *reply.token_ids], np.int32)
    return model.logprobs(version, history, temperature)[len(prompt) - 1 : -1]


def differences(
    model: TinyModel, prompt: list[int], reply: Generation, *, temperature: float = 1.0
) -> FloatArray:
    """[N] |log-prob of the engine - log-prob of transformers under the version that the token carries|."""
    theirs = np.zeros(len(reply.token_ids), np.float32)
    for version in np.unique(reply.versions):
        rows = expected(model, prompt, reply, int(version), temperature=temperature)
        mine = reply.versions == version
        theirs[mine] = rows[mine, reply.token_ids[mine]]
    distances: FloatArray = np.abs(theirs - reply.logprobs)
    return distances


def assert_agree(model: TinyModel, asked: Sequence[list[int]], answered: Sequence[Generation]) -> None:
    """Each token has the log-prob that transformers gives it: stale weights or KV cache are 0.1 and more off."""
    for prompt, reply in zip(asked, answered, strict=True):
        assert differences(model, prompt, reply).max() < 1e-3
