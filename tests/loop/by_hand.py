"""The loop's ports driven by hand: each operation lasts until the test ends it, in any order it likes.

For tests that search through schedules. Nothing here decides when something ends; versions are
those of the engines at the start and at the end of a rollout, as when an update comes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from molt_core.api.trainer import StepResult
from molt_core.experience import Outcome, Rollout, RolloutSummary, Segment
from molt_core.experience.rollout import summarize
from molt_core.loop.ports import Published, RankShare, RolloutRequest


@frozen(eq=False)
class Operation:
    """What the policy is asked for at the moment."""

    kind: Literal["step", "publish", "save"]
    argument: Any
    """Shares, version, or step, state and payloads."""
    done: asyncio.Future[Any]


@frozen(eq=False)
class Sampling:
    """A rollout in flight."""

    request: RolloutRequest
    started_at_version: int
    done: asyncio.Future[RolloutSummary]


class PolicyByHand:
    """A `Policy` with one operation at a time.

    Args:
        drain: a publish waits for the rollouts in flight and holds up new ones.
    """

    num_ranks = 1

    def __init__(self, *, version: int = 0, drain: bool = False) -> None:
        self.version = version
        """That the engines use."""
        self.operation: Operation | None = None
        self.committing: asyncio.Future[Path] | None = None
        """What is left of a save, beside other operations."""
        self.drain = drain
        self.may_sample = asyncio.Event()
        self.may_sample.set()

    async def step(self, shares: Sequence[RankShare]) -> StepResult:
        result: StepResult = await self._begin("step", tuple(shares))
        return result

    async def publish(self, version: int) -> Published:
        if self.drain:
            self.may_sample.clear()
        published: Published = await self._begin("publish", version)
        return published

    async def save(self, step: int, state: Mapping[str, Any], payloads: Mapping[str, Any]) -> Awaitable[Path]:
        assert self.committing is None, "the last save has not ended"
        committing: Awaitable[Path] = await self._begin("save", (step, state, payloads))
        return committing

    def end_step(self, *, applied: bool) -> None:
        self._end("step").set_result(StepResult(applied=applied, metrics={}))

    def end_publish(self) -> None:
        """All engines use the version, from now on."""
        assert self.operation is not None
        self.version = self.operation.argument
        self.may_sample.set()
        self._end("publish").set_result(Published(num_bytes=0, gather_s=0.0, load_s=0.0))

    def end_save(self) -> None:
        """The trainer may go on; `end_commit` comes after it."""
        saved = self._end("save")
        self.committing = saved.get_loop().create_future()
        saved.set_result(self.committing)

    def end_commit(self, error: Exception | None = None) -> None:
        committing, self.committing = self.committing, None
        assert committing is not None
        if error is None:
            committing.set_result(Path("step"))
        else:
            committing.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Let the operation of the moment raise."""
        assert self.operation is not None
        self._end(self.operation.kind).set_exception(error)

    async def _begin(self, kind: Literal["step", "publish", "save"], argument: Any) -> Any:
        assert self.operation is None, f"{kind} was asked for during {self.operation}"
        done = asyncio.get_running_loop().create_future()
        self.operation = Operation(kind, argument, done)
        return await done

    def _end(self, kind: str) -> asyncio.Future[Any]:
        operation, self.operation = self.operation, None
        assert operation is not None
        assert operation.kind == kind
        return operation.done


class SamplerByHand:
    """A `Sampler`. `running` holds what can be ended, by rollout id and in order of the starts."""

    def __init__(self, policy: PolicyByHand) -> None:
        self.requests: list[RolloutRequest] = []
        """All that were made, in order."""
        self.running: dict[str, Sampling] = {}
        self._policy = policy

    async def sample(self, request: RolloutRequest) -> RolloutSummary:
        self.requests.append(request)
        # engines that drain hold a new request until they have the new weights
        await self._policy.may_sample.wait()
        done = asyncio.get_running_loop().create_future()
        self.running[request.rollout_id] = Sampling(request, self._policy.version, done)
        try:
            summary: RolloutSummary = await done
        finally:
            self.running.pop(request.rollout_id, None)
        return summary

    def finish(self, rollout_id: str, outcome: Outcome, reward: float | None = None) -> RolloutSummary:
        """End a rollout of two sampled tokens, one by the version of its start and one by that of now."""
        sampling = self.running.pop(rollout_id)
        rollout = Rollout(
            rollout_id=rollout_id,
            group_id=sampling.request.group_id,
            segments=(
                Segment.from_turn(
                    [1], [2, 3], [-1.0, -1.0], [sampling.started_at_version, self._policy.version]
                ),
            ),
            outcome=outcome,
            reward=reward,
            reason="" if reward is not None else str(outcome),
        )
        summary = summarize(rollout, payload=rollout)
        sampling.done.set_result(summary)
        return summary

    def fail(self, rollout_id: str, error: Exception) -> None:
        """Let a rollout raise, as when its engine is lost."""
        self.running.pop(rollout_id).done.set_exception(error)
