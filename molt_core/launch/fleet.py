"""Actors of one role that can stand in for each other, each started again when it is lost.

In go requests for actors and what makes a new one ready; out come places to work at. A loss is
reported by whoever sees it. The lost actor is stopped and, after a pause, started anew, as often
within an hour as `max_restarts` allows; then the others do its work, and when there are none, whoever
waits for a place is told the cause. Knows nothing of what the actors do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from attrs import define, field, frozen

from molt_core.api.events import ActorDied, ActorJoined, Event
from molt_core.api.executor import ActorRequest, Executor, Handle
from molt_core.errors import ActorLost, PreflightError

HOUR_S: Final = 3600.0
LONGEST_PAUSE_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
"""For a lost actor to end. Executors end its process before that; a thread of this one can't be ended."""
SLACK: Final = 8
"""So many more places than the idlest actor's may be taken where work is sent back to."""

Ready = Callable[[Handle], Awaitable[None]]


@define(eq=False)
class Member:
    request: ActorRequest
    index: int
    handle: Handle | None = None
    """None while it is not there."""
    load: int = 0
    """Places that are taken."""
    losses: deque[float] = field(factory=deque)
    """When it was lost within the last hour."""
    has_place: bool = False
    """Its actor was spawned, and may not be ready yet."""
    rests: bool = False
    """It was lost too often to be started again now."""
    lost: asyncio.Future[ActorLost] = field(init=False)
    """Done when it is."""


@frozen(eq=False)
class Place:
    """Leave to use one actor; it is the same one as long as it lives."""

    member: Member
    handle: Handle

    @property
    def key(self) -> int:
        """Of the member, which may be another actor later."""
        return self.member.index


class Fleet:
    """
    Args:
        prepare: what makes a new actor ready, apart from `admit`.
    """

    def __init__(
        self, requests: Sequence[ActorRequest], executor: Executor, *, prepare: Ready, max_restarts: int,
        notify: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self._members = [Member(request, index) for index, request in enumerate(requests)]
        self._executor = executor
        self._prepare = prepare
        self._max_restarts = max_restarts
        self._notify = notify
        self._keepers: list[asyncio.Task[None]] = []
        self._least = len(requests)
        self._started = False
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self.admit: Ready | None = None
        """What a new actor needs at last. `membership` is held meanwhile, and it is used from then on."""
        self.membership = asyncio.Lock()
        """Held by whoever must not miss one that joins."""

    async def start(self, least: int | None = None) -> None:
        """Bring up all, or `least` of them; the others join when they find a place.

        Raises:
            MoltError: what the first one failed with that could not be started.
        """
        self._least = len(self._members) if least is None else least
        self._keepers = [
            asyncio.create_task(self._keep(member), name=f"keeper of {member.request.name}")
            for member in self._members
        ]
        try:
            while len(self.places()) < self._least:
                await self._change()
        except BaseException:
            await self.close()
            raise
        self._started = True

    async def close(self) -> None:
        """Start none again. The executor stops those that are there."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    def places(self) -> list[Place]:
        """Those that are there."""
        return [Place(each, each.handle) for each in self._members if each.handle is not None]

    @asynccontextmanager
    async def place(self, home: int | None = None) -> AsyncIterator[Place]:
        """Take a place where the fewest are taken, or at `home` if that is not much busier; wait while there is none.

        Raises:
            RunError: none is there, and none will be.
        """
        while not (places := self.places()):
            await self._change()
        place = places[choose([each.member.load for each in places], [each.key for each in places], home)]
        place.member.load += 1
        try:
            yield place
        finally:
            place.member.load -= 1

    def report(self, place: Place, error: ActorLost) -> bool:
        """Tell that the actor of a place is lost. False if `error` is about another one."""
        member = place.member
        if error.actor != member.request.name:
            return False
        # many see the same loss, some of them when the next one is already there
        if member.handle is place.handle:
            member.handle = None
            # its traceback would keep the rollout that met it, and so its tokens in the store
            member.lost.set_result(error.with_traceback(None))
        return True

    async def _change(self) -> None:
        """Wait until an actor has come or gone."""
        if self._failure is None:
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _keep(self, member: Member) -> None:
        """Keep one member there, for as long as it may be started again."""
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            member.rests = False
            started, handle = self._clock(), None
            error: Exception
            try:
                handle = await self._executor.spawn(member.request)
                member.has_place = True
                await self._prepare(handle)
                await self._join(member, handle)
                if self._started:
                    self._notify(ActorJoined(name=handle.name, seconds=self._clock() - started))
                error = await member.lost
            except Exception as failure:  # noqa: BLE001 - told to whoever waits for a place, or the start is tried again
                error = failure
            if handle is not None:
                with suppress(Exception):  # it is lost, whatever it answers now
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await self._executor.retire(handle)
            pause = self._after(member, error)
            member.has_place = False

    async def _join(self, member: Member, handle: Handle) -> None:
        async with self.membership:
            if self.admit is not None:
                await self.admit(handle)
            member.lost = asyncio.get_running_loop().create_future()
            member.handle = handle
        self._wake()

    def _after(self, member: Member, error: Exception) -> float | None:
        """Seconds until a member that was lost, or did not start, is started again; None: never."""
        wants_place = not member.has_place and isinstance(error, PreflightError)
        may_wait = wants_place and len(self._members) > self._least
        enough = self._started or len(self.places()) >= self._least
        if not (enough or may_wait):
            self._fail(error)
            return None
        now = self._clock()
        # one that waits for a machine has not died
        if not (may_wait and any(each.has_place for each in self._members)):
            member.losses.append(now)
        while member.losses and member.losses[0] <= now - HOUR_S:
            member.losses.popleft()
        pause: float | None = min(2.0 ** len(member.losses), LONGEST_PAUSE_S)
        if len(member.losses) > self._max_restarts:
            member.rests = True
            if all(each.rests for each in self._members):
                self._fail(error)
                return None
            pause = member.losses[0] + HOUR_S - now if self._max_restarts else None
        self._notify(ActorDied(name=member.request.name, cause=str(error), restart_in_s=pause))
        return pause

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._wake()

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()


def choose(loads: Sequence[int], keys: Sequence[int], home: int | None) -> int:
    """Index of where to go: the idlest, or `home` while no more than SLACK places more are taken there.

    Args:
        loads: places taken, of those that are there.
        keys: what `home` is one of.
    """
    idlest = min(loads)
    if home in keys and loads[keys.index(home)] <= idlest + SLACK:
        return keys.index(home)
    return loads.index(idlest)
