"""Observers of a run: each is told of every event, none can stop the run or another observer.

Events go in through `notify`, which never waits: they lie in a bounded queue until one
background thread hands them to the observers, one after the other, in the order of their
names. `close` ends that and returns what the end of the run must report: failures, observers
that were switched off, events that were lost.

pluggy marks and checks implementations but is not trusted with more: each observer has a
plugin manager of its own, because in a shared one an observer that raises stops those after
it, and one that fails its check may stay half registered.

When observers are slower than the run, the queue fills. `RolloutFinished`, of which there are
many and whose sums are in `StepFinished`, is then dropped first, and the oldest event after
that; both are counted. Blocking instead would stall the loop, and growing would end in memory.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from molt_core.api.events import Event, RolloutFinished
from molt_core.api.findings import Finding
from molt_core.errors import ConfigError
from molt_core.plugins.observer import HOOK_OF, Observer, registered

QUEUE_SIZE: Final = 1024
"""Events that may wait."""
CLOSE_DEADLINE_S: Final = 10.0


class Hooks:
    """The chosen observers and the thread that serves them."""

    def __init__(self, observers: Iterable[tuple[str, object]], *, queue_size: int = QUEUE_SIZE) -> None:
        """Check and register `(owner, observer)` pairs; the owner, `NAME (DIST VERSION)`, is for messages.

        Raises:
            ConfigError: observers that can't be registered, with all findings.
        """
        self._observers: list[Observer] = []
        findings: list[Finding] = []
        for owner, plugin in sorted(observers, key=lambda pair: pair[0]):
            try:
                self._observers.append(registered(owner, plugin))
            except ConfigError as error:
                findings.extend(error.findings)
        if findings:
            raise ConfigError(findings)
        self._watched = frozenset().union(*(observer.watches for observer in self._observers))
        self._queue: deque[Event] = deque()
        self._queue_size = queue_size
        self._changed = threading.Condition()
        self._closing = False
        self._lost: Counter[str] = Counter()
        self._report: tuple[str, ...] | None = None
        self._thread = threading.Thread(target=self._serve, name="molt-hooks", daemon=True)
        if self._observers:
            self._thread.start()

    def notify(self, event: Event) -> None:
        """Hand over an event and return at once. From any thread; ignored after `close`."""
        if HOOK_OF[type(event)] not in self._watched:
            return
        with self._changed:
            if self._closing:
                return
            if len(self._queue) >= self._queue_size and not self._make_room(event):
                return
            self._queue.append(event)
            self._changed.notify()

    def state(self) -> dict[str, Any]:
        """What observers remembered after the last event that each was told, by their names; for a checkpoint."""
        return {_name(observer): observer.state for observer in self._observers if observer.state is not None}

    def restore(self, states: Mapping[str, Any]) -> None:
        """The inverse, before the first event. Observers that were not there then are left as they are."""
        for observer in self._observers:
            if _name(observer) in states:
                observer.restore(states[_name(observer)])

    def close(self, deadline_s: float = CLOSE_DEADLINE_S) -> tuple[str, ...]:
        """Deliver what is queued, wait at most `deadline_s` for it, and return lines for the end of the run.

        Blocks, so call it from a thread when an event loop is running. A second call returns the same lines.
        """
        if self._report is None:
            with self._changed:
                self._closing = True
                self._changed.notify()
            if self._observers:
                self._thread.join(deadline_s)
            self._report = tuple(self._lines(deadline_s))
        return self._report

    def _make_room(self, event: Event) -> bool:
        """Lose one event of a full queue; False if it is `event` itself."""
        if isinstance(event, RolloutFinished):
            self._lost[type(event).__name__] += 1
            return False
        place = next((i for i, queued in enumerate(self._queue) if isinstance(queued, RolloutFinished)), 0)
        self._lost[type(self._queue[place]).__name__] += 1
        del self._queue[place]
        return True

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                event = self._queue.popleft()
            for observer in self._observers:
                observer.tell(event)

    def _lines(self, deadline_s: float) -> Iterator[str]:
        with self._changed:
            num_undelivered = len(self._queue)
            self._queue.clear()
        for observer in self._observers:
            if observer.busy_with:
                yield f"hook {observer.owner} did not return from {observer.busy_with} in {deadline_s:g} s"
            if observer.num_failures:
                yield observer.describe_failures()
        if num_undelivered:
            yield f"hooks were not done within {deadline_s:g} s, {num_undelivered} events were not delivered"
        if self._lost:
            slowest = max(self._observers, key=lambda observer: observer.seconds)
            lost = ", ".join(f"{count} {name}" for name, count in sorted(self._lost.items()))
            yield f"hooks were slower than the run and missed {lost}; most time went to {slowest.owner}"


def _name(observer: Observer) -> str:
    """Without distribution and version, which may change until a run is resumed."""
    return observer.owner.partition(" (")[0]
