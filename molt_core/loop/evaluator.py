"""When evaluations run, and which version they are of.

What is evaluated is the policy that the engines sample from. Strictly on-policy, an evaluation
ends before the next step begins, as those before and after training do, so it is of one version.
Otherwise it starts when its version is in every engine and goes on beside training, which never
waits for it: updates that come in between reach its replies as they reach any rollout, and the
event says the oldest and the newest version that sampled a token of it. Holding updates back
instead would stall training for the longest reply of each evaluation.

One evaluation at a time: what falls due while another runs starts after that, with the version
of then. Decides nothing about training.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from molt_core.api.events import EvalFinished
from molt_core.api.run_options import RunOptions
from molt_core.data.tasks import Task
from molt_core.loop.evaluate import evaluate
from molt_core.loop.ports import Sampler
from molt_core.report.metrics import eval_metrics


class Evaluator:
    """
    Args:
        name: `<set>` in the names of metrics.
        now: step and version of the moment.
    """

    def __init__(
        self, tasks: Sequence[Task], *, name: str, sampler: Sampler, run: RunOptions, max_tokens: int,
        now: Callable[[], tuple[int, int]], notify: Callable[[EvalFinished], None],
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._name = name
        self._sampler = sampler
        self._run = run
        self._max_tokens = max_tokens
        self._now = now
        self._notify = notify
        self._asked = False
        self._is_running = False
        self._closed = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def evaluate(self) -> None:
        """One evaluation, now.

        Raises:
            ExceptionGroup: of RunError, when an engine or worker is gone.
        """
        if not self._tasks:
            return
        step, version = self._now()
        summaries = await evaluate(
            self._tasks,
            sampler=self._sampler,
            run=self._run,
            max_tokens=self._max_tokens,
            label=f"eval-{step}",
        )
        oldest = [each.oldest_version for each in summaries if each.oldest_version is not None]
        newest = [each.newest_version for each in summaries if each.newest_version is not None]
        self._notify(
            EvalFinished(
                step=step,
                # of the tokens: an update may have been under way when the evaluation began
                version=min(oldest, default=version),
                newest_version=max(newest, default=version),
                metrics=eval_metrics(summaries, name=self._name),
                summaries=summaries,
            )
        )

    async def run(self) -> None:
        """Evaluate whenever that was asked for; ends some time after `finish`. Raises as `evaluate`."""
        try:
            while self._asked or not self._closed:
                if self._asked:
                    self._asked, self._is_running = False, True
                    await self.evaluate()
                    self._is_running = False
                else:
                    self._idle.set()
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            self._closed = True
            self._idle.set()

    def ask(self) -> None:
        """Wish for an evaluation, now or, where the run is ending, when it is resumed."""
        self._asked = True
        if not self._closed:
            self._idle.clear()
        self._changed.set()

    async def idle(self) -> None:
        """Wait until nothing is evaluated, or will be any more."""
        await self._idle.wait()

    @property
    def is_due(self) -> bool:
        """Whether one was asked for and has not ended."""
        return self._asked or self._is_running

    def finish(self) -> None:
        """No further wishes; those made are fulfilled."""
        self._closed = True
        self._changed.set()
