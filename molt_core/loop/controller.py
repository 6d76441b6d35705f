"""The loop: sample, collect, learn, publish; evaluate and save in between; end in order.

In go protocols (`ports`), options and task sources; out come events and a checkpoint. Producer
and learner run side by side and meet in the buffer, which alone decides who may go on. A stop,
a lost engine or a failed step closes the buffer; the learner then ends after the step it is
in, everything unfinished is accounted for, the last good weights are saved, and only then is
the cause raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from molt_core.api.events import (
    EvalFinished,
    RunFinished,
    StepFinished,
    WeightsPublished,
)
from molt_core.api.run_options import RunOptions
from molt_core.api.trainer import Stateful
from molt_core.errors import Interrupted, first_cause
from molt_core.experience import Group
from molt_core.loop.buffer import Buffer
from molt_core.loop.evaluator import Evaluator
from molt_core.loop.learner import Learned, learn
from molt_core.loop.parts import LoopParts, Resumed
from molt_core.loop.ports import Published, RolloutsLost
from molt_core.loop.producer import Producer
from molt_core.loop.progress import Progress
from molt_core.loop.saver import Saver
from molt_core.loop.state import LoopState
from molt_core.loop.stop import Stopped
from molt_core.loop.timings import timings
from molt_core.report.metrics import step_metrics


class Controller:
    def __init__(self, run: RunOptions, parts: LoopParts) -> None:
        self._run = run
        self._parts = parts
        self._buffer = Buffer(
            prompts_per_step=run.prompts_per_step, max_staleness=run.max_staleness, rounds=run.steps,
            in_order=run.deterministic,
        )  # fmt: skip
        self._producer = Producer(
            run=run, max_tokens=parts.max_tokens, needs_groups=parts.needs_groups, tasks=parts.tasks,
            sampler=parts.sampler, buffer=self._buffer, ledger=parts.ledger, notify=parts.notify,
            group_filter=parts.group_filter, top_logprobs=parts.top_logprobs,
        )  # fmt: skip
        self._evaluator = Evaluator(
            parts.eval_tasks, name=parts.eval_name, sampler=parts.sampler, run=run, max_tokens=parts.max_tokens,
            now=lambda: (self._engines_step, self._version), notify=self._on_evaluated,
        )  # fmt: skip
        self._saver = Saver(
            parts.policy, state=self._state, run_again=self._producer.run_again, notify=parts.notify,
            step=None if parts.resumed is None else parts.resumed.state.step,
        )  # fmt: skip
        self._progress = Progress(run)
        self._engines_step = 0
        """Step whose weights the engines have; behind that of the progress while they are published."""
        self._version = 0
        """That the engines have."""
        self._outcome = "done"
        if parts.resumed is not None:
            self._resume(parts.resumed)

    async def run(self) -> str:
        """Train. Returns `done` or `stopped_early`.

        Raises:
            Interrupted: a stop was requested; the state is saved.
            RunError: the run could not go on; what was trained is saved if the trainer lives.
        """
        error: BaseException | None = None
        try:
            if self._parts.resumed is None:
                await self._evaluate()
            elif self._progress.weights_version:
                await self._publish()
            await self._train()
            if self._progress.evaluated_step != self._progress.step:
                await self._evaluate()
        except Stopped as stopped:
            self._outcome = "interrupted"
            error = Interrupted(f"stopped by {stopped} after step {self._progress.step}")
        except Exception as failure:  # noqa: BLE001 - whatever failed, the state is saved and the ledger closed first
            self._outcome = "failed"
            error = first_cause(failure)
        error = await self._save_last(error)
        # for this process; in the checkpoint it is pending, and is what a resumed run begins with
        reason = {"interrupted": "interrupted", "failed": "run_failed"}.get(self._outcome, "run_ended")
        self._parts.ledger.drop_pending(reason)
        self._parts.ledger.write(self._progress.step)
        self._parts.notify(
            RunFinished(
                outcome=self._outcome,
                step=self._progress.step,
                ledger=self._parts.ledger.as_dict(),
                checkpoint=self._saver.checkpoint,
                error=str(error or ""),
            )
        )
        if error is not None:
            raise error
        return self._outcome

    async def _train(self) -> None:
        producer = asyncio.create_task(self._producer.run(), name="producer")
        learner = asyncio.create_task(self._learn(), name="learner")
        evaluator = asyncio.create_task(self._evaluator.run(), name="evaluator")
        stop = asyncio.create_task(self._parts.stop.wait(), name="stop")
        beside = (producer, evaluator)
        try:
            waiting = {learner, stop, *beside}
            while not learner.done():
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                waiting -= done
                if stop in done or any(task.exception() for task in done.intersection(beside)):
                    self._buffer.close()
                    for task in beside:
                        task.cancel()
                    waiting = {learner}
            learner.result()
            for task in beside:
                if task.done() and not task.cancelled():
                    task.result()
            if self._parts.stop.is_set:
                raise Stopped(self._parts.stop.reason)
            self._evaluator.finish()
            await self._parts.stop.unless_stopped(evaluator)
        finally:
            self._buffer.close()
            tasks = (learner, stop, *beside)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _learn(self) -> None:
        clock, progress = asyncio.get_running_loop().time, self._progress
        await self._alone()
        while progress.step < self._run.steps:
            await self._saver.look()
            started = clock()
            idle_before = self._buffer.statistics().idle_s
            groups = await self._buffer.take()
            if not groups:
                return
            wait_s = clock() - started
            learned = await self._learn_from(groups)
            if learned is None:
                continue
            self._account(groups, learned)
            metrics = step_metrics(groups, version=self._version)
            progress.end_step(applied=learned.result.applied, reward=metrics["reward/mean"])
            published = await self._publish() if learned.result.applied else None
            self._engines_step = progress.step
            if not progress.is_at_goal:
                self._buffer.end_round(self._version)
            statistics = self._buffer.statistics()
            metrics |= learned.result.metrics
            if learned.shaped_reward is not None:
                metrics["reward/shaped_mean"] = learned.shaped_reward
            metrics |= timings(
                groups, learned, published, wait_s=wait_s, idle_s=statistics.idle_s - idle_before,
                step_s=clock() - started,
            )  # fmt: skip
            metrics |= self._parts.ledger.drop_metrics()
            self._parts.ledger.write(progress.step)
            self._parts.notify(StepFinished(step=progress.step, metrics=metrics))
            # the store may forget their tokens, before the next ones are waited for
            del groups
            progress.check_learning(learned.result.metrics)
            if progress.is_at_goal:
                self._outcome = "stopped_early"
                return
            is_evaluated = progress.is_due(self._run.eval_every)
            if is_evaluated:
                self._evaluator.ask()
                await self._alone()
            is_best_wanted = self._run.keep_best is not None and is_evaluated
            if progress.is_due(self._run.save_every) or is_best_wanted:
                await self._saver.save()

    async def _learn_from(self, groups: tuple[Group, ...]) -> Learned | None:
        """One step; None if tokens of it were lost: those groups are run again, and nothing has changed."""
        asked = [part for name, part in self._stateful() if name in ("estimator", "shaper")]
        before = [part.state() for part in asked]
        try:
            return await learn(
                groups,
                estimator=self._parts.estimator,
                policy=self._parts.policy,
                shaper=self._parts.shaper,
            )
        except RolloutsLost as lost:
            for part, state in zip(asked, before, strict=True):
                part.restore(state)
            self._producer.run_again(lost.rollout_ids)
            return None

    async def _alone(self) -> None:
        """Strictly on-policy, nothing is trained or saved beside an evaluation."""
        if self._run.max_staleness == 0:
            await self._evaluator.idle()

    def _account(self, groups: tuple[Group, ...], learned: Learned) -> None:
        counts = {
            "num_prompts": len(groups),
            "num_rollouts": sum(len(group.trainable) for group in groups),
            "num_tokens": learned.num_tokens,
        }
        self._buffer.settle()
        self._producer.forget(groups)
        if learned.result.applied:
            self._parts.ledger.train(**counts)
        else:
            self._parts.ledger.drop("non_finite_step", **counts)

    async def _publish(self) -> Published:
        published = await self._parts.policy.publish(self._progress.weights_version)
        # only now, when every engine has acknowledged: a version is what is being sampled from
        self._version = self._progress.weights_version
        seconds = published.gather_s + published.load_s
        self._parts.notify(
            WeightsPublished(version=self._version, seconds=seconds, num_bytes=published.num_bytes)
        )
        return published

    async def _evaluate(self) -> None:
        await self._parts.stop.unless_stopped(self._evaluator.evaluate())

    def _on_evaluated(self, event: EvalFinished) -> None:
        self._parts.notify(event)
        self._progress.evaluated(event)

    def _state(self) -> LoopState:
        """The loop as it is now. Of the learner, between two steps; of what is in flight, whenever."""
        contents = self._buffer.contents()
        waiting = sum(len(group.trainable) for _, group in contents.ready)
        self._parts.ledger.check(
            num_prompts=len(contents.indices),
            num_rollouts=waiting + len(contents.in_flight) * self._run.group_size,
        )
        return LoopState(
            **self._progress.for_state(),
            outcome=self._outcome,
            evaluation_due=self._evaluator.is_due,
            num_filtered=self._producer.num_filtered,
            num_lost_groups=self._producer.num_lost_groups,
            tasks=self._parts.tasks.state(),
            ledger=self._parts.ledger.as_dict(),
            buffer=contents,
            tasks_open=tuple(
                (task.task_id, task.epoch) for task in map(self._producer.task_of, contents.indices)
            ),
            parts={name: part.state() for name, part in self._stateful()},
            clock_s=asyncio.get_running_loop().time(),
        )

    def _resume(self, resumed: Resumed) -> None:
        state = resumed.state
        self._progress = Progress.of(self._run, state)
        self._engines_step = state.step
        self._parts.ledger.restore(state.ledger)
        self._buffer.restore(state.buffer, round_number=state.step, version=state.version)
        self._producer.restore(
            dict(zip(state.buffer.indices, resumed.tasks, strict=True)),
            num_filtered=state.num_filtered, num_lost_groups=state.num_lost_groups,
        )  # fmt: skip
        if state.evaluation_due:
            self._evaluator.ask()
        for name, part in self._stateful():
            if name in state.parts:
                part.restore(state.parts[name])

    def _stateful(self) -> Iterator[tuple[str, Stateful]]:
        """What remembers earlier steps, of all that the loop itself calls."""
        parts: dict[str, object] = {
            "estimator": self._parts.estimator,
            "filter": self._parts.group_filter,
            "shaper": self._parts.shaper,
            "hooks": self._parts.hooks,
        }
        for name, part in parts.items():
            if isinstance(part, Stateful):
                yield name, part

    async def _save_last(self, error: BaseException | None) -> BaseException | None:
        """Save once more at the end, unless that step is saved already or nothing was trained.

        Returns what the run ends with: `error`, or that nothing could be saved.
        """
        for save in (self._saver.end, self._save_last_step):
            try:
                await save()
            except Exception as failure:  # noqa: BLE001 - a dead trainer, a full disk: told with, or as, the run's end
                if error is None:
                    self._outcome, error = "failed", first_cause(failure)
                else:
                    error.add_note(f"and the state could not be saved: {failure}")
        return error

    async def _save_last_step(self) -> None:
        if self._saver.step != self._progress.step and self._progress.weights_version > 0:
            await self._saver.save()
            await self._saver.end()
