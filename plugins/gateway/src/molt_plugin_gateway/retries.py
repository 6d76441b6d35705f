"""Which requests of a session are attempts at one answer. A pure state machine: no tasks, clocks, sockets.

Clients repeat a request when its connection breaks, mostly without saying so. Parallel sub-agents
send equal requests too, and each wants a sample of its own. What tells them apart is whether the
connection of the earlier one still lives, and whether its answer was delivered:

    in flight, connection lives      a repeat is a new sample
    in flight, connection gone       a repeat waits for the same sample
    done, not delivered              a repeat is answered with the same sample
    delivered                        a repeat is a new sample

A request that calls itself a retry has given its earlier connection up, even if that was not
noticed here; it joins when there is no doubt which one it repeats.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from attrs import define

Work = TypeVar("Work")


@define(eq=False)
class Attempt(Generic[Work]):
    """An answer in the making, or made."""

    key: str
    work: Work
    connection: int = 0
    """Number of the newest connection that waits for it, among those that ever did."""
    live: bool = True


class Attempts(Generic[Work]):
    """The attempts of one session that were not delivered yet."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[Attempt[Work]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def join(self, key: str, *, retried: bool) -> Attempt[Work] | None:
        """The attempt that a request with this key repeats; None when the request is a new one.

        Args:
            key: digest of all that makes two requests equal.
            retried: the client calls this request a retry.
        """
        waiting = self._by_key.get(key, [])
        joined = next((attempt for attempt in waiting if not attempt.live), None)
        if joined is None and retried and len(waiting) == 1:
            joined = waiting[0]
        if joined is not None:
            joined.connection += 1
            joined.live = True
        return joined

    def begin(self, key: str, work: Work) -> Attempt[Work]:
        attempt = Attempt(key, work)
        self._by_key.setdefault(key, []).append(attempt)
        return attempt

    def gone(self, attempt: Attempt[Work], connection: int) -> None:
        """The connection ended before the answer was delivered. Late news of an older one change nothing."""
        if attempt.connection == connection:
            attempt.live = False

    def end(self, attempt: Attempt[Work]) -> None:
        """The answer was delivered, or there will be none: nothing may join any more."""
        waiting = self._by_key.get(attempt.key, [])
        if attempt in waiting:
            waiting.remove(attempt)
            if not waiting:
                del self._by_key[attempt.key]
