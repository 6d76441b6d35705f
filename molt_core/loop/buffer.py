"""Between producer and learner: groups in flight, groups ready, and the rule who may go on.

In go claims (`admit`) and finished groups (`deliver`, `drop`); out come the groups of a round
(`take`), and those whose tokens are lost go back to be run again (`reopen`). Bounded by
construction: at most prompts_per_step * (max_staleness + 1) groups are unconsumed at any time.
The rules themselves are pure functions in `pacing`; this file only keeps the counts and wakes
whoever waits. One asyncio loop, no locks: every change is made in one piece, between two awaits,
so what `contents` shows is a state that the loop was really in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

from attrs import frozen

from molt_core.experience import Group
from molt_core.loop import pacing


@frozen(kw_only=True)
class Ticket:
    """Leave to run one group."""

    index: int
    """Order of dispatch, from 0."""
    deadline: int
    """Last round that may consume the group."""
    version: int
    """Published policy version at dispatch."""
    started_s: float


@frozen(kw_only=True)
class BufferContents:
    """What a later process needs to go on: every group that was started and neither consumed nor dropped."""

    ready: tuple[tuple[Ticket, Group], ...]
    """Finished, in order of completion."""
    in_flight: tuple[Ticket, ...]
    """In order of dispatch."""
    num_started: int
    num_dropped: int

    @property
    def indices(self) -> tuple[int, ...]:
        """Of all these groups, in order of dispatch."""
        return tuple(sorted(ticket.index for ticket in (*self.in_flight, *(each for each, _ in self.ready))))


@frozen(kw_only=True)
class BufferStatistics:
    num_started: int
    num_dropped: int
    num_in_flight: int
    num_ready: int
    round_number: int
    idle_s: float
    """Seconds in which nothing was in flight because the producer had to wait for the trainer."""


class Buffer:
    """
    Args:
        in_order: prefer groups by dispatch and not by completion, so that a step does not depend on timing.
    """

    def __init__(
        self, *, prompts_per_step: int, max_staleness: int, rounds: int, in_order: bool = False
    ) -> None:
        self._prompts_per_step = prompts_per_step
        self._max_staleness = max_staleness
        self._rounds = rounds
        self._in_order = in_order
        self._round = 0
        self._version = 0
        self._num_started = 0
        self._num_dropped = 0
        self._in_flight: dict[int, Ticket] = {}
        self._again: deque[Ticket] = deque()
        """Those in flight that someone has to run again."""
        self._ready: list[tuple[Ticket, Group]] = []
        self._taken: list[tuple[Ticket, Group]] = []
        self._exhausted = False
        self._closed = False
        self._idle_s = 0.0
        self._idle_since: float | None = None
        self._changed = asyncio.Event()

    def restore(self, contents: BufferContents, *, round_number: int, version: int) -> None:
        """Hold what an earlier process held, before anyone waits here."""
        self._round, self._version = round_number, version
        self._num_started, self._num_dropped = contents.num_started, contents.num_dropped
        self._ready = list(contents.ready)
        self._in_flight = {ticket.index: ticket for ticket in contents.in_flight}
        self._again = deque(contents.in_flight)

    async def admit(self) -> Ticket | None:
        """Wait until one more group may start, or start again; None when none will any more."""
        await self._until(lambda: bool(self._again) or self._is_over() or self._may_start())
        if self._is_over():
            return None
        if self._again:
            return self._again.popleft()
        now = asyncio.get_running_loop().time()
        if self._idle_since is not None:
            self._idle_s += now - self._idle_since
            self._idle_since = None
        ticket = Ticket(
            index=self._num_started,
            deadline=self._round + self._max_staleness,
            version=self._version,
            started_s=now,
        )
        self._num_started += 1
        self._in_flight[ticket.index] = ticket
        return ticket

    def deliver(self, ticket: Ticket, group: Group) -> None:
        self._land(ticket)
        self._ready.append((ticket, group))
        if self._in_order:
            self._ready.sort(key=lambda entry: entry[0].index)
        self._wake()

    def drop(self, ticket: Ticket) -> None:
        """The group will not be trained; its place is free again."""
        self._land(ticket)
        self._num_dropped += 1
        self._wake()

    async def take(self) -> tuple[Group, ...]:
        """The groups of the next round; fewer at the end of the data, none when there is nothing more."""
        await self._until(lambda: self._closed or self._at_end() or self._choice() is not None)
        if self._closed:
            return ()
        choice = self._choice() or tuple(range(min(len(self._ready), self._prompts_per_step)))
        self._taken = [self._ready[index] for index in choice]
        self._ready = [entry for index, entry in enumerate(self._ready) if index not in choice]
        return tuple(group for _, group in self._taken)

    def settle(self) -> None:
        """What was taken is trained on, and accounted for."""
        self._taken = []
        self._wake()

    def reopen(self, rollout_ids: Collection[str]) -> tuple[Group, ...]:
        """Let finished groups with these rollouts be run again; what else was taken waits for the next `take`.

        Returns what they were.
        """
        finished, self._taken, self._ready = [*self._taken, *self._ready], [], []
        again = []
        for ticket, group in finished:
            if any(rollout.rollout_id in rollout_ids for rollout in group.rollouts):
                again.append(group)
                self._again.append(ticket)
                self._in_flight[ticket.index] = ticket
            else:
                self._ready.append((ticket, group))
        self._in_flight = dict(sorted(self._in_flight.items()))
        self._wake()
        return tuple(again)

    def end_round(self, version: int) -> None:
        """A round is over and all engines use `version`."""
        self._round += 1
        self._version = version
        self._wake()

    def exhaust(self) -> None:
        """The data has ended: no further group will start."""
        self._exhausted = True
        self._wake()

    def close(self) -> None:
        """The run ends; everyone who waits here goes on with nothing."""
        self._closed = True
        self._wake()

    def contents(self) -> BufferContents:
        return BufferContents(
            ready=(*self._taken, *self._ready),
            in_flight=tuple(self._in_flight.values()),
            num_started=self._num_started,
            num_dropped=self._num_dropped,
        )

    def statistics(self) -> BufferStatistics:
        return BufferStatistics(
            num_started=self._num_started,
            num_dropped=self._num_dropped,
            num_in_flight=len(self._in_flight),
            num_ready=len(self._ready),
            round_number=self._round,
            idle_s=self._idle_s,
        )

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _land(self, ticket: Ticket) -> None:
        del self._in_flight[ticket.index]
        if not self._in_flight:
            self._idle_since = asyncio.get_running_loop().time()

    def _may_start(self) -> bool:
        return not self._exhausted and pacing.may_start(
            self._num_started - self._num_dropped,
            self._round,
            prompts_per_step=self._prompts_per_step,
            max_staleness=self._max_staleness,
            rounds=self._rounds,
        )

    def _is_over(self) -> bool:
        # a group in flight may still be dropped, and then its place has to be filled again; one that
        # waits to be trained may be lost, and then it has to be run again
        held = self._in_flight or self._ready or self._taken
        return self._closed or self._round >= self._rounds or (self._exhausted and not held)

    def _at_end(self) -> bool:
        return self._exhausted and not self._in_flight and len(self._ready) < self._prompts_per_step

    def _choice(self) -> tuple[int, ...] | None:
        return pacing.choose(
            [ticket.deadline for ticket, _ in self._ready],
            [ticket.deadline for ticket in self._in_flight.values()],
            self._round,
            prompts_per_step=self._prompts_per_step,
        )
