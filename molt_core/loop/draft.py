"""What is known of a rollout while it runs, and the one way in which it ends.

In go a request and the work that fills the draft; out comes a `Rollout`, whatever happened. It
knows neither engines nor environments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from attrs import evolve

from molt_core.api.engine import GenerateRequest, Generation
from molt_core.api.environment import Score
from molt_core.api.gateway import Generate
from molt_core.errors import RunError
from molt_core.experience import LeftOut, Outcome, Rollout, Segment, TurnReward
from molt_core.experience.checks import violations
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.user_code import Excluded, failed


class Draft:
    """Filled step by step, so that a failure loses nothing that was sampled before it."""

    def __init__(self, request: RolloutRequest) -> None:
        self.request = request
        self.doing = "starting"
        """For the message when time runs out."""
        self.segments: tuple[Segment, ...] = ()
        self.left_out: tuple[LeftOut, ...] = ()
        self.turn_rewards: tuple[TurnReward, ...] = ()
        self.truncated = False
        self.prompt_text = ""
        self.reply_text = ""
        self.info: dict[str, float] = {}
        self.score = Score(reward=None)
        self.notes: list[str] = []
        """What went wrong without costing the rollout."""
        self.lost: RunError | None = None
        """That the engine is gone, once a request has shown it."""

    def watched(self, generate: Generate) -> Generate:
        """The same, and a lost engine is noted: foreign code that asks a judge may catch or wrap the error."""

        async def watching(request: GenerateRequest) -> Generation:
            try:
                return await generate(request)
            except RunError as lost:
                self.lost = lost
                raise

        return watching

    def rollout(self, outcome: Outcome, *, reason: str = "", detail: str = "") -> Rollout:
        graded = not reason
        return Rollout(
            rollout_id=self.request.rollout_id,
            group_id=self.request.group_id,
            segments=self.segments,
            outcome=outcome,
            reward=self.score.reward if graded else None,
            reason=reason,
            detail="; ".join([detail, *self.notes] if detail else self.notes),
            left_out=self.left_out,
            turn_rewards=self.turn_rewards if graded else (),
            info={**self.info, **self.score.info},
            prompt_text=self.prompt_text,
            reply_text=self.reply_text,
        )


async def run_within_deadline(draft: Draft, work: Coroutine[Any, Any, None]) -> Rollout:
    """Do the work within the rollout's deadline.

    Raises:
        RunError: the engine is gone.
    """
    clock = asyncio.get_running_loop().time
    started = clock()
    try:
        async with asyncio.timeout(draft.request.timeout_s):
            await work
        rollout = draft.rollout(Outcome.TRUNCATED if draft.truncated else Outcome.FINISHED)
        if broken := violations(rollout):
            raise failed("invalid_rollout", "; ".join(broken))
    except Excluded as excluded:
        rollout = draft.rollout(excluded.outcome, reason=excluded.reason, detail=excluded.detail)
    except TimeoutError:
        detail = f"no result within {draft.request.timeout_s:g} s, while {draft.doing}"
        rollout = draft.rollout(Outcome.FAILED, reason="timeout", detail=detail)
    if draft.lost is not None:
        raise draft.lost
    return evolve(rollout, seconds=clock() - started)
