"""Slot `engines`: token ids in, token ids with log-probabilities and policy versions out.

API 1. The factory is called as `factory(options, context)` in the engine's process; `start`
does the heavy work. An engine samples from exactly softmax(logits / temperature): no nucleus,
no penalties, nothing from a model's generation_config.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from attrs import cmp_using, field, frozen
from attrs.converters import optional

from molt_core.experience.segment import FloatArray, IntArray


@frozen(kw_only=True)
class EngineContext:
    """What an engine needs to know of the run."""

    model_folder: str
    """Local folder with config, weights and tokenizer, or a Hugging Face id."""
    dtype: Literal["float32", "bfloat16"]
    max_length: int
    """Most tokens of prompt and reply together."""
    max_concurrency: int
    """Most requests that the run keeps in flight on this engine."""
    seed: int
    index: int
    """Number of this replica, from 0."""
    num_threads: int
    end_token_ids: tuple[int, ...]
    """Any of these ends a reply; the token itself belongs to the reply."""
    top_logprobs: int = 0
    """Most that a request may ask for."""


@frozen(kw_only=True)
class GenerateRequest:
    request_id: str
    token_ids: Sequence[int]
    max_tokens: int
    temperature: float
    """0 is greedy; used for evaluation only."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """The reply ends, with reason `stop`, when its text (special tokens included) contains one of them. The
    token that completes it belongs to the reply, like all before it."""
    json_schema: str | None = None
    """JSON schema that the reply must follow, `{}` for any JSON object. The log-probs are then those of the
    constrained distribution, which is not the policy's: such a reply is not for training."""
    top_logprobs: int = 0
    """k: beside each sampled token, ids and log-probs of the k likeliest tokens in its place."""


def reply_limit(request: GenerateRequest, *, max_length: int, vocabulary_size: int) -> int:
    """Most tokens that the reply may have, so that prompt and reply fit in `max_length` together.

    Engines call it first: a token id outside the vocabulary can end a whole engine.

    Raises:
        ValueError: the request can't be answered; says what was wanted.
    """
    num_prompt = len(request.token_ids)
    if not 0 < num_prompt < max_length:
        raise ValueError(
            f"request {request.request_id}: the prompt has {num_prompt} tokens; wanted at least 1, and fewer "
            f"than the {max_length} (max_length) that prompt and reply may have together"
        )
    if not 0 <= min(request.token_ids) <= max(request.token_ids) < vocabulary_size:
        raise ValueError(
            f"request {request.request_id}: token ids lie in {min(request.token_ids)} … "
            f"{max(request.token_ids)}, wanted 0 … {vocabulary_size - 1}"
        )
    if request.max_tokens < 1 or not 0 <= request.temperature < math.inf:
        raise ValueError(
            f"request {request.request_id}: max_tokens is {request.max_tokens}, wanted at least 1; "
            f"temperature is {request.temperature:g}, wanted finite and not negative"
        )
    if not 0 <= request.top_logprobs <= vocabulary_size:
        raise ValueError(
            f"request {request.request_id}: top_logprobs is {request.top_logprobs}, wanted 0 … {vocabulary_size}, "
            "the size of the vocabulary"
        )
    if "" in request.stop:
        raise ValueError(f"request {request.request_id}: a stop text is empty, which every reply contains")
    return min(request.max_tokens, max_length - num_prompt)


def _float32(values: object) -> FloatArray:
    return np.asarray(values, dtype=np.float32)


def _int32(values: object) -> IntArray:
    return np.asarray(values, dtype=np.int32)


@frozen(kw_only=True)
class Generation:
    """One reply of N tokens."""

    token_ids: IntArray = field(converter=_int32, eq=cmp_using(eq=np.array_equal))
    """[N] int32."""
    logprobs: FloatArray = field(converter=_float32, eq=cmp_using(eq=np.array_equal))
    """[N] float32, log softmax(logits / temperature) of each token when it was sampled; at temperature 0 unscaled."""
    versions: IntArray = field(converter=_int32, eq=cmp_using(eq=np.array_equal))
    """[N] int32, policy version that sampled each token."""
    finish_reason: Literal["stop", "length"]
    top_ids: IntArray | None = field(
        default=None, converter=optional(_int32), eq=cmp_using(eq=np.array_equal)
    )
    """[N, k] int32, the k likeliest tokens in each place, likeliest first; None unless asked for."""
    top_logprobs: FloatArray | None = field(
        default=None, converter=optional(_float32), eq=cmp_using(eq=np.array_equal)
    )
    """[N, k] float32, their log-probs, as `logprobs`."""


@frozen(kw_only=True)
class Weights:
    """Published weights of one policy version: a safetensors file with Hugging Face names."""

    version: int
    path: Path
    """In shared memory of the trainer's node where there is one."""
    num_bytes: int


class Engine(Protocol):
    async def start(self) -> None:
        """Load the model; returns when requests can be served. Version is 0."""
        ...

    async def generate(self, request: GenerateRequest) -> Generation:
        """Cancelling the call aborts the request.

        Raises:
            ValueError: the request can't be answered, e.g. `stop` without a tokenizer in the model's folder,
                or a schema that the engine can't follow. Says what was wanted; the engine is unharmed.
            RunError: the engine is lost.
        """
        ...

    async def update_weights(self, weights: Weights, *, drain: bool) -> None:
        """Load new weights. Tokens sampled afterwards carry `weights.version`.

        drain=True lets requests in flight finish first; drain=False freezes them, and they go on
        under the new weights. No cache of the old weights survives. When this returns, the weights
        are in use. Raises if any tensor is missing, unknown or of another shape.
        """
        ...

    async def check_health(self) -> None:
        """Raises when the engine can't serve any more."""
        ...

    async def stop(self) -> None:
        """End every process and thread that the engine started. May be called twice."""
        ...
