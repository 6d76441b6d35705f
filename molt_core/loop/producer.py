"""Keeps groups in flight: claims a place, runs the rollouts of one prompt, hands the group on.

Out go finished groups to the buffer, counts to the ledger and events to observers. A rollout
that failed or abstained is left out of its group with a reason; a group in which nothing is
left to compare is dropped and its place filled by the next prompt. When groups are lost one
after the other, the run ends with the cause instead of burning through the data.
A finished group whose tokens are lost before they were trained on is run again under its old ticket.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from molt_core.api.events import Event, RolloutFinished
from molt_core.api.run_options import RunOptions
from molt_core.api.shaping import Filter
from molt_core.data.tasks import Task, TaskSource
from molt_core.errors import RunError
from molt_core.experience import Group, RolloutSummary
from molt_core.loop.buffer import Buffer, Ticket
from molt_core.loop.ports import RolloutRequest, Sampler
from molt_core.report.ledger import Ledger

INCOMPLETE_GROUP = "incomplete_group"
FILTERED = "filtered"
LOST = "lost"
MAX_FILTERED_IN_A_ROW = 1000
"""Groups after which a filter that keeps nothing ends the run."""


class Producer:
    def __init__(
        self, *, run: RunOptions, max_tokens: int, needs_groups: bool, tasks: TaskSource, sampler: Sampler,
        buffer: Buffer, ledger: Ledger, notify: Callable[[Event], None], group_filter: Filter | None = None,
        top_logprobs: int = 0,
    ) -> None:  # fmt: skip
        self._run_options = run
        self._max_tokens = max_tokens
        self._top_logprobs = top_logprobs
        whole = run.group_size if run.incomplete_groups == "drop" else 1
        self._min_rollouts = max(whole, 2 if needs_groups else 1)
        self._filter = group_filter
        self._num_filtered = 0
        self._tasks = tasks
        self._sampler = sampler
        self._buffer = buffer
        self._ledger = ledger
        self._notify = notify
        self._lost_in_a_row: list[RolloutSummary] = []
        self._num_lost_groups = 0
        self._open: dict[int, Task] = {}
        """Tasks of the groups that are neither trained nor dropped, by index."""
        self._max_lost_groups = max(8, 2 * run.prompts_per_step)

    def restore(self, tasks: Mapping[int, Task], *, num_filtered: int, num_lost_groups: int) -> None:
        """Go on where an earlier process was, with the tasks of its groups."""
        self._open = dict(tasks)
        self._num_filtered, self._num_lost_groups = num_filtered, num_lost_groups

    async def run(self) -> None:
        """Until the data or the run ends. Cancelling it cancels every rollout.

        Raises:
            ExceptionGroup: of RunError, when an engine or worker is gone or groups fail in a row.
        """
        async with asyncio.TaskGroup() as groups:
            while (ticket := await self._buffer.admit()) is not None:
                task = self._open.get(ticket.index)
                if task is None:
                    task = self._tasks.next()
                    if task is None:
                        self._buffer.drop(ticket)
                        self._buffer.exhaust()
                        continue
                    self._open[ticket.index] = task
                    # not in the group's own task, which starts later: ticket, cursor and ledger change together
                    self._ledger.dispatch(num_prompts=1, num_rollouts=self._run_options.group_size)
                groups.create_task(self._run_group(ticket, task), name=f"group {ticket.index}")

    @property
    def num_filtered(self) -> int:
        """Groups in a row that the filter dropped."""
        return self._num_filtered

    @property
    def num_lost_groups(self) -> int:
        """Groups in a row that gave nothing to train on."""
        return self._num_lost_groups

    def task_of(self, index: int) -> Task:
        """The task of a group that is neither trained nor dropped."""
        return self._open[index]

    def forget(self, groups: Iterable[Group]) -> None:
        """They are trained."""
        for group in groups:
            del self._open[group.index]

    def run_again(self, rollout_ids: Collection[str]) -> None:
        """Sample finished groups once more, because tokens of these rollouts are lost."""
        for group in self._buffer.reopen(rollout_ids):
            rollouts = group.trainable
            self._ledger.dispatch(num_rollouts=self._run_options.group_size)
            self._ledger.drop(
                LOST, num_rollouts=len(rollouts), num_tokens=sum(each.num_sampled for each in rollouts)
            )

    async def _run_group(self, ticket: Ticket, task: Task) -> None:
        size = self._run_options.group_size
        async with asyncio.TaskGroup() as siblings:
            running = [
                siblings.create_task(
                    self._sample(ticket, task, member), name=f"rollout {ticket.index}-{member}"
                )
                for member in range(size)
            ]
        group = Group(
            group_id=str(ticket.index),
            task_id=task.task_id,
            index=ticket.index,
            dispatched_at_version=ticket.version,
            rollouts=tuple(rollout.result() for rollout in running),
            started_s=ticket.started_s,
            finished_s=asyncio.get_running_loop().time(),
        )
        self._hand_on(ticket, group)

    async def _sample(self, ticket: Ticket, task: Task, member: int) -> RolloutSummary:
        run = self._run_options
        request = RolloutRequest(
            rollout_id=f"{ticket.index}-{member}",
            group_id=str(ticket.index),
            task=task,
            temperature=run.temperature,
            max_tokens=self._max_tokens,
            # one seed per rollout, so that siblings differ and a repeat of the run does not
            seed=(run.seed * 1_000_003 + ticket.index * run.group_size + member) % 2**31,
            timeout_s=run.rollout_timeout_s,
            top_logprobs=self._top_logprobs,
        )
        summary = await self._sampler.sample(request)
        self._notify(RolloutFinished(step=self._buffer.statistics().round_number, summary=summary))
        return summary

    def _hand_on(self, ticket: Ticket, group: Group) -> None:
        """Book the group and give it away, without an await, so that no checkpoint sees half of it."""
        complete = len(group.trainable) >= self._min_rollouts
        # asked first: it may raise, and then the group is still in flight
        keeps = self._filter is None or (
            complete and self._filter.keeps([rollout.reward for rollout in group.rollouts])
        )
        self._ledger.dispatch(num_tokens=sum(rollout.num_generated for rollout in group.rollouts))
        for rollout in group.rollouts:
            for reason, num_tokens in rollout.left_out_tokens.items():
                self._ledger.drop(reason, num_tokens=num_tokens)
            if not rollout.trains:
                self._ledger.drop(rollout.reason, num_rollouts=1, num_tokens=rollout.num_sampled)
        if complete and keeps:
            self._num_lost_groups = self._num_filtered = 0
            self._buffer.deliver(ticket, group)
            return
        rest = group.trainable
        self._ledger.drop(
            FILTERED if complete else INCOMPLETE_GROUP, num_prompts=1, num_rollouts=len(rest),
            num_tokens=sum(rollout.num_sampled for rollout in rest),
        )  # fmt: skip
        del self._open[ticket.index]
        self._buffer.drop(ticket)
        if complete:
            self._num_lost_groups = 0
            self._count_filtered(group)
        else:
            self._count_lost(group)

    def _count_filtered(self, group: Group) -> None:
        self._num_filtered += 1
        if self._num_filtered == MAX_FILTERED_IN_A_ROW:
            rewards = [rollout.reward for rollout in group.rollouts]
            raise RunError(
                f"the filter dropped {MAX_FILTERED_IN_A_ROW} prompts in a row; the last one had rewards {rewards}. "
                "Are all prompts solved, or none? Change --filter or the data",
                reason="all_filtered",
            )

    def _count_lost(self, group: Group) -> None:
        self._num_lost_groups += 1
        self._lost_in_a_row += [rollout for rollout in group.rollouts if not rollout.trains]
        if self._num_lost_groups < self._max_lost_groups:
            self._lost_in_a_row = self._lost_in_a_row[-64:]
            return
        (reason, detail), count = Counter(
            (rollout.reason, rollout.detail) for rollout in self._lost_in_a_row[-64:]
        ).most_common(1)[0]
        raise RunError(
            f"{self._num_lost_groups} prompts in a row gave nothing to train on; most frequent cause "
            f"({count} of the last {min(64, len(self._lost_in_a_row))} lost rollouts): {reason}: {detail}",
            reason="nothing_to_train_on",
        )
