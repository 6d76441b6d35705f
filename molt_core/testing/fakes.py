"""Scripted stand-ins for the loop's ports and for an engine.

Time, rewards and failures are functions that the caller gives; versions are tracked as the
real parts track them, so a test can see what was sampled by which policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from molt_core.api.engine import GenerateRequest, Generation, Weights
from molt_core.api.environment import Row
from molt_core.api.trainer import StepResult
from molt_core.data.tasks import EnvironmentTasks, TaskSource
from molt_core.experience import Outcome, Rollout, RolloutSummary, Segment
from molt_core.experience.rollout import summarize
from molt_core.loop.ports import Published, RankShare, RolloutRequest

RequestTo = Callable[[RolloutRequest], float]


def made_up_top(
    token_ids: Sequence[int], logprobs: npt.NDArray[np.floating[Any]], num_top: int
) -> dict[str, Any]:
    """Likely tokens of a `Generation`: the sampled one and some that share a thousandth of the rest; {} for none."""
    if num_top == 0:
        return {}
    ids = np.asarray(token_ids, np.int32).reshape(-1, 1) ^ np.arange(num_top, dtype=np.int32)
    rest = np.log(-np.expm1(np.minimum(logprobs, -1e-6)) / 1000 / num_top)
    values = np.where(np.arange(num_top) == 0, logprobs[:, None], rest[:, None])
    order = np.argsort(-values, axis=-1, kind="stable")
    return {
        "top_ids": np.take_along_axis(ids, order, -1),
        "top_logprobs": np.take_along_axis(values, order, -1),
    }


class FakeEngine:
    """An `Engine` that replies with a script, one token per `token_s` seconds.

    Args:
        reply: from prompt ids to reply ids; cut at max_tokens.
        token_s: seconds per token on the loop's clock.
    """

    def __init__(
        self,
        reply: Callable[[Sequence[int]], Sequence[int]] = lambda prompt: [*prompt[-1:], 0],
        token_s: float = 0.0,
    ) -> None:
        self.version = 0
        self.requests: list[GenerateRequest] = []
        self._reply = reply
        self._token_s = token_s
        self._running = 0
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        script = list(self._reply(request.token_ids))
        token_ids = script[: request.max_tokens]
        versions = []
        await self._may_run.wait()
        self._running += 1
        self._idle.clear()
        try:
            for _ in token_ids:
                await asyncio.sleep(self._token_s)
                await self._may_run.wait()
                versions.append(self.version)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
        reason: Literal["stop", "length"] = "stop" if len(token_ids) == len(script) else "length"
        logprobs = np.full(len(token_ids), -1.0)
        return Generation(
            token_ids=token_ids, logprobs=logprobs, versions=versions, finish_reason=reason,
            **made_up_top(token_ids, logprobs, request.top_logprobs),
        )  # fmt: skip

    async def update_weights(self, weights: Weights, *, drain: bool) -> None:
        if drain:
            await self._idle.wait()
        self._may_run.clear()
        self.version = weights.version
        self._may_run.set()

    async def check_health(self) -> None: ...

    async def stop(self) -> None: ...


class FakePolicy:
    """A `Policy` that counts. `step_s`, `publish_s` and `save_s` are seconds on the loop's clock.

    Args:
        applied: from step number to whether its update is finite.
    """

    def __init__(
        self, *, step_s: float = 0.0, publish_s: float = 0.0, save_s: float = 0.0, num_ranks: int = 1,
        applied: Callable[[int], bool] = lambda step: True,
    ) -> None:  # fmt: skip
        self.version = 0
        self.num_ranks = num_ranks
        self.trained: list[tuple[RankShare, ...]] = []
        self.saved: list[tuple[int, Mapping[str, Any]]] = []
        self.payloads: dict[str, Any] = {}
        self._step_s = step_s
        self._publish_s = publish_s
        self._save_s = save_s
        self._applied = applied

    async def step(self, shares: Sequence[RankShare]) -> StepResult:
        await asyncio.sleep(self._step_s)
        self.trained.append(tuple(shares))
        return StepResult(applied=self._applied(len(self.trained)), metrics={"policy/loss": 0.0})

    async def publish(self, version: int) -> Published:
        await asyncio.sleep(self._publish_s)
        self.version = version
        return Published(num_bytes=0, gather_s=0.0, load_s=self._publish_s)

    async def save(self, step: int, state: Mapping[str, Any], payloads: Mapping[str, Any]) -> Awaitable[Path]:
        return asyncio.create_task(self._commit(step, state, payloads))

    async def _commit(self, step: int, state: Mapping[str, Any], payloads: Mapping[str, Any]) -> Path:
        await asyncio.sleep(self._save_s)
        self.saved.append((step, state))
        self.payloads = dict(payloads)
        return Path(f"step_{step}")


class FakeSampler:
    """A `Sampler` whose rollouts take `seconds` and earn `reward`.

    Tokens are sampled half at the version of the start and half at that of the end, as when a
    weight update comes in between.

    Args:
        outcome: may declare a rollout failed or abstained; its reason is the outcome's name.
        raises: an exception to raise instead, as when an engine is lost.
    """

    def __init__(
        self, policy: FakePolicy, *, seconds: RequestTo = lambda request: 1.0, reward: RequestTo = lambda request: 0.0,
        outcome: Callable[[RolloutRequest], Outcome] = lambda request: Outcome.FINISHED,
        raises: Callable[[RolloutRequest], Exception | None] = lambda request: None,
    ) -> None:  # fmt: skip
        self.requests: list[RolloutRequest] = []
        self.num_in_flight = 0
        self.most_in_flight = 0
        self._policy = policy
        self._seconds = seconds
        self._reward = reward
        self._outcome = outcome
        self._raises = raises

    async def sample(self, request: RolloutRequest) -> RolloutSummary:
        self.requests.append(request)
        self.num_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
        started_at = self._policy.version
        try:
            await asyncio.sleep(self._seconds(request))
        finally:
            self.num_in_flight -= 1
        if (error := self._raises(request)) is not None:
            raise error
        outcome = self._outcome(request)
        trains = outcome in (Outcome.FINISHED, Outcome.TRUNCATED)
        rollout = Rollout(
            rollout_id=request.rollout_id,
            group_id=request.group_id,
            segments=(Segment.from_turn([1], [2, 3], [-1.0, -1.0], [started_at, self._policy.version]),),
            outcome=outcome,
            reward=self._reward(request) if trains else None,
            reason="" if trains else str(outcome),
        )
        return summarize(rollout, payload=rollout)


class _Counting:
    """Tasks 0, 1, 2, …, endless or `num_tasks` long."""

    def __init__(self, num_tasks: int | None) -> None:
        self._num_tasks = num_tasks

    def tasks(self, split: str, seed: int) -> Iterator[Row]:
        number = 0
        while self._num_tasks is None or number < self._num_tasks:
            yield {"number": number}
            number += 1


def fake_tasks(num_tasks: int | None = None) -> TaskSource:
    """A source of numbered tasks."""
    source: Any = _Counting(num_tasks)
    return EnvironmentTasks(source, "train", seed=0)
