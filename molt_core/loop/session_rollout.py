"""A rollout that talks to the policy in a session: opened, watched, closed, and its tokens kept.

`agent_rollout` and `turn_rollout` say what happens in it. A failed rollout keeps its segments
too, so that every sampled token is accounted for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from molt_core.api.gateway import Capture, Gateway, Generate, RecordedSession, SessionRequest
from molt_core.errors import RunError
from molt_core.experience import Rollout
from molt_core.loop.draft import Draft, run_within_deadline
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.user_code import UNWIND_S, Excluded, failed, user_code

Play = Callable[[Draft, RecordedSession], Coroutine[Any, Any, None]]
"""Fills the draft by talking to the session."""


async def run_in_session(
    request: RolloutRequest, play: Play, *, gateway: Gateway, generate: Generate
) -> Rollout:
    """Run one rollout within its deadline.

    Raises:
        RunError: the engine is gone, also while the rollout waits for something else.
    """
    draft = Draft(request)
    return await run_within_deadline(draft, _play(draft, play, gateway, generate))


async def _play(draft: Draft, play: Play, gateway: Gateway, generate: Generate) -> None:
    request = draft.request
    session = gateway.open(
        SessionRequest(
            rollout_id=request.rollout_id,
            generate=draft.watched(generate),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            timeout_s=request.timeout_s,
            top_logprobs=request.top_logprobs,
        )
    )
    try:
        await _unless_failed(session, play(draft, session))
    finally:
        try:
            await close(draft, session)
        except Excluded as excluded:  # what ended the rollout says more than this
            draft.notes.append(f"the session could not be closed: {excluded.detail}")
    if not any(segment.num_sampled for segment in draft.segments):
        left_out = sum(part.segment.num_sampled for part in draft.left_out)
        why = (
            f"{left_out} tokens are left out"
            if left_out
            else "the policy was not asked, or its context was full"
        )
        raise failed("no_samples", f"no sampled token to train on: {why}")


async def close(draft: Draft, session: RecordedSession) -> Capture:
    """Close the session and keep what it recorded. May be called twice."""
    capture: Capture = await user_code("gateway_error", session.close, timeout_s=UNWIND_S)
    draft.segments, draft.left_out = capture.segments, capture.left_out
    draft.prompt_text = capture.prompt_text
    draft.reply_text = draft.reply_text or capture.reply_text
    draft.info = {**capture.info, **draft.info}
    return capture


async def _unless_failed(session: RecordedSession, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, unless the session can't go on: then raise at once what it says."""
    working = asyncio.create_task(work)
    failing = asyncio.create_task(_failure(session))
    tasks: set[asyncio.Task[Any]] = {working, failing}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            raise failing.result()
        working.result()
    finally:
        for task in tasks:
            task.cancel()
        # foreign code may refuse to end; the rollout does not wait for it for ever
        ended, _ = await asyncio.wait(tasks, timeout=UNWIND_S)
        for task in ended:
            _ = task.cancelled() or task.exception()  # looked at, so that asyncio does not complain


async def _failure(session: RecordedSession) -> RunError:
    error = await session.failed()
    return error if isinstance(error, RunError) else RunError(f"the session failed: {error!r}")
