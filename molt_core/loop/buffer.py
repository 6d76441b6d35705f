"""Between producer and learner: groups in flight, groups ready, and the rule who may go on.

In go claims (`admit`) and finished groups (`deliver`, `drop`); out come the groups of a round
(`take`). Bounded by construction: at most prompts_per_step * (max_staleness + 1) groups are
unconsumed at any time. The rules themselves are pure functions in `pacing`; this file only
keeps the counts and wakes whoever waits. One asyncio loop, no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
class BufferStatistics:
    num_started: int
    num_dropped: int
    num_in_flight: int
    num_ready: int
    round_number: int
    idle_s: float
    """Seconds in which nothing was in flight because the producer had to wait for the trainer."""


class Buffer:
    def __init__(
        self, *, prompts_per_step: int, max_staleness: int, rounds: int, first_round: int = 0
    ) -> None:
        self._prompts_per_step = prompts_per_step
        self._max_staleness = max_staleness
        self._rounds = rounds
        self._round = first_round
        self._version = 0
        self._num_claimed = first_round * prompts_per_step
        self._num_started = 0
        self._num_dropped = 0
        self._in_flight: dict[int, Ticket] = {}
        self._ready: list[tuple[Ticket, Group]] = []
        self._exhausted = False
        self._closed = False
        self._idle_s = 0.0
        self._idle_since: float | None = None
        self._changed = asyncio.Condition()

    async def admit(self) -> Ticket | None:
        """Wait until one more group may start; None when none will any more."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or self._all_started() or self._may_start())
            if self._closed or self._all_started():
                return None
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
            self._num_claimed += 1
            self._in_flight[ticket.index] = ticket
            return ticket

    async def deliver(self, ticket: Ticket, group: Group) -> None:
        await self._update(lambda: self._ready.append((self._land(ticket), group)))

    async def drop(self, ticket: Ticket) -> None:
        """The group will not be trained; its place is free again."""

        def forget() -> None:
            self._land(ticket)
            self._num_claimed -= 1
            self._num_dropped += 1

        await self._update(forget)

    async def take(self) -> tuple[Group, ...]:
        """The groups of the next round; fewer at the end of the data, none when there is nothing more."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or self._at_end() or self._choice() is not None)
            if self._closed:
                return ()
            choice = self._choice() or tuple(range(min(len(self._ready), self._prompts_per_step)))
            taken = tuple(self._ready[index][1] for index in choice)
            self._ready = [entry for index, entry in enumerate(self._ready) if index not in choice]
            return taken

    async def end_round(self, version: int) -> None:
        """A round is over and all engines use `version`."""

        def advance() -> None:
            self._round += 1
            self._version = version

        await self._update(advance)

    async def exhaust(self) -> None:
        """The data has ended: no further group will start."""
        await self._update(lambda: setattr(self, "_exhausted", True))

    async def close(self) -> None:
        """The run ends; everyone who waits here goes on with nothing."""
        await self._update(lambda: setattr(self, "_closed", True))

    def unconsumed(self) -> tuple[Group, ...]:
        """Finished groups that no round has taken."""
        return tuple(group for _, group in self._ready)

    def statistics(self) -> BufferStatistics:
        return BufferStatistics(
            num_started=self._num_started,
            num_dropped=self._num_dropped,
            num_in_flight=len(self._in_flight),
            num_ready=len(self._ready),
            round_number=self._round,
            idle_s=self._idle_s,
        )

    async def _update(self, change: Callable[[], None]) -> None:
        async with self._changed:
            change()
            self._changed.notify_all()

    def _land(self, ticket: Ticket) -> Ticket:
        del self._in_flight[ticket.index]
        if not self._in_flight:
            self._idle_since = asyncio.get_running_loop().time()
        return ticket

    def _may_start(self) -> bool:
        return pacing.may_start(
            self._num_claimed,
            self._round,
            prompts_per_step=self._prompts_per_step,
            max_staleness=self._max_staleness,
            rounds=self._rounds,
        )

    def _all_started(self) -> bool:
        # a group in flight may still be dropped, and then its place has to be filled again
        return self._exhausted or (self._round >= self._rounds)

    def _at_end(self) -> bool:
        return self._exhausted and not self._in_flight and len(self._ready) < self._prompts_per_step

    def _choice(self) -> tuple[int, ...] | None:
        return pacing.choose(
            [ticket.deadline for ticket, _ in self._ready],
            [ticket.deadline for ticket in self._in_flight.values()],
            self._round,
            prompts_per_step=self._prompts_per_step,
        )
