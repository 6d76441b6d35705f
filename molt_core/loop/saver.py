"""Saves the loop's state: one checkpoint after the other, each made durable beside training.

In goes how to take the state, out come checkpoints and their events. Decides not when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from molt_core.api.events import CheckpointSaved, Event
from molt_core.loop.ports import Policy, RolloutsLost
from molt_core.loop.state import LoopState


class Saver:
    """
    Args:
        state: takes it; asked between two steps.
        run_again: is told of rollouts whose tokens are gone, which the state must not hold any more.
        step: that is saved already.
    """

    def __init__(
        self, policy: Policy, *, state: Callable[[], LoopState], run_again: Callable[[Collection[str]], None],
        notify: Callable[[Event], None], step: int | None,
    ) -> None:  # fmt: skip
        self._policy = policy
        self._state = state
        self._run_again = run_again
        self._notify = notify
        self._commit: asyncio.Task[None] | None = None
        self.step = step
        """The last one that was saved."""
        self.checkpoint: Path | None = None

    async def save(self) -> None:
        """Write a checkpoint. Returns when the trainer may go on; raises what the last one ended with."""
        await self.end()
        started = asyncio.get_running_loop().time()
        while True:
            state = self._state()
            try:
                committed = await self._policy.save(state.step, state.to_json(), state.payloads)
                break
            except RolloutsLost as lost:
                self._run_again(lost.rollout_ids)

        async def commit() -> None:
            self.checkpoint = await committed
            self.step = state.step
            seconds = asyncio.get_running_loop().time() - started
            self._notify(CheckpointSaved(step=state.step, path=self.checkpoint, seconds=seconds))

        self._commit = asyncio.create_task(commit(), name=f"checkpoint of step {state.step}")

    async def end(self) -> None:
        """Wait for the checkpoint that is being committed, if one is."""
        commit, self._commit = self._commit, None
        if commit is not None:
            await commit

    async def look(self) -> None:
        """Raise what a commit has failed with; wait for none."""
        if self._commit is not None and self._commit.done():
            await self.end()
