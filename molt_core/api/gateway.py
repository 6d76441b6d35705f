"""Slot `gateways`: opens sessions that agents talk to, and records what the policy sampled in them.

API 1. The factory is called as `factory(options, context)` in each worker process that runs
agents or multi-turn environments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from attrs import field, frozen

from molt_core.api.agent import Session
from molt_core.api.engine import GenerateRequest, Generation
from molt_core.experience.rollout import LeftOut
from molt_core.experience.segment import NOT_SAMPLED, IntArray, Segment

Generate = Callable[[GenerateRequest], Awaitable[Generation]]


@frozen(kw_only=True)
class GatewayContext:
    model_folder: str
    """Local folder with tokenizer and chat template."""
    max_length: int
    """Most tokens of prompt and reply together."""
    end_token_ids: tuple[int, ...]


@frozen(kw_only=True)
class SessionRequest:
    """One rollout's conversation with one engine."""

    rollout_id: str
    generate: Generate
    """Raises RunError when the engine is gone, ValueError when it refuses a request."""
    max_tokens: int
    """Most sampled tokens of one reply."""
    temperature: float
    seed: int
    timeout_s: float
    top_logprobs: int = 0
    """Likeliest tokens to record beside each sampled one."""


@frozen(kw_only=True)
class Place:
    """Where the last token of a sample ended up."""

    segment: int
    token: int


@frozen(kw_only=True)
class Capture:
    """Everything a session recorded. Each sampled token is in exactly one of `segments` and `left_out`."""

    segments: tuple[Segment, ...]
    left_out: tuple[LeftOut, ...]
    ends: Mapping[int, Place]
    """By sample_id, for those samples that train."""
    truncated: bool
    """A length limit ended the last reply of the main conversation, or its next prompt did not fit."""
    prompt_text: str
    """Last user text of the first request of the main conversation."""
    reply_text: str
    """Last reply of the main conversation."""
    info: Mapping[str, float] = field(factory=dict)
    """Counts worth a metric: `calls`, `samples`, `orphans`, `side_calls`, …"""


def recorded(token_ids: Sequence[int] | IntArray, replies: Sequence[tuple[int, Generation]]) -> Segment:
    """The segment in which these replies, one or more, were sampled, each from its place on; all else is context."""
    num_tokens = len(token_ids)
    sampled, logprobs = np.zeros(num_tokens, np.bool_), np.zeros(num_tokens, np.float32)
    versions = np.full(num_tokens, NOT_SAMPLED, np.int32)
    for start, reply in replies:
        span = slice(start, start + len(reply.token_ids))
        sampled[span], logprobs[span], versions[span] = True, reply.logprobs, reply.versions
    top = {
        name: np.concatenate([getattr(reply, name) for _, reply in replies])
        for name in ("top_ids", "top_logprobs")
        if all(getattr(reply, name) is not None for _, reply in replies)
    }
    token_ids = np.asarray(token_ids, np.int32)
    return Segment(token_ids=token_ids, sampled=sampled, logprobs=logprobs, versions=versions, **top)


class RecordedSession(Session, Protocol):
    async def failed(self) -> BaseException:
        """Waits until the session can't go on (RunError of the engine), and returns why."""
        ...

    async def close(self) -> Capture:
        """Cancel what is in flight and return what was recorded. May be called twice."""
        ...


class Gateway(Protocol):
    async def start(self) -> None:
        """Load tokenizer and parsers; listen, where agents come over HTTP."""
        ...

    def open(self, request: SessionRequest) -> RecordedSession: ...

    async def stop(self) -> None: ...
