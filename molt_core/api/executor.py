"""Slot `executors`: puts the run's processes somewhere and carries calls to them.

API 1. The factory is called as `factory(options, run_options)`. The core asks for actors by
role; where they run, and how calls and bytes travel, is the executor's matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from attrs import field, frozen


@frozen(kw_only=True)
class ActorRequest:
    """One process-like thing to start."""

    name: str
    """`engine-0`, `trainer-1`, `worker-0`: used in messages."""
    role: Literal["engines", "ranks", "workers"]
    """What it is one of; an executor may place them differently."""
    factory: str
    """`module:attribute`, called as `factory(store, *args)` in the actor's process."""
    args: tuple[Any, ...] = ()
    """JSON-like values."""
    env: Mapping[str, str] = field(factory=dict)
    """Environment variables that must be set before the factory's module is imported."""
    num_cpus: float = 1
    wants_gpu: bool = False
    """Takes a whole GPU where there are any."""
    own_process: bool = False
    """Can't share a process with others (ranks above 0 of a process group)."""


class Handle(Protocol):
    """A started actor. May be passed to other actors as an argument of `call`."""

    name: str

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method, sync or async, and return its result.

        Raises:
            ActorLost: the actor died; the message says how.
            Exception: what the method itself raised.
        """
        ...

    async def stop(self) -> None:
        """Let it end in order if it can, and end it in any case."""
        ...


class Executor(Protocol):
    @property
    def shares_files(self) -> bool:
        """Whether all actors are on this machine, those that are started later too, and see its files."""
        ...

    async def start(self, packages: Sequence[str] = ()) -> None:
        """Connect, and check that what the run needs is there: places for its actors, and on each machine `packages`.

        Args:
            packages: distributions, and absolute paths of Python files, that have to be as they are here.

        Raises:
            PreflightError: with what is there and what is wanted.
        """
        ...

    async def spawn(self, request: ActorRequest) -> Handle:
        """Start an actor; its process has built it when this returns.

        Raises:
            PreflightError: there is no place for it now.
            Exception: what building it raised.
        """
        ...

    async def retire(self, handle: Handle) -> None:
        """Stop one actor, dead or alive, and forget it."""
        ...

    async def stop(self) -> None:
        """Stop and await every actor. May be called twice."""
        ...


class Store(Protocol):
    """Where a worker leaves the heavy part of a rollout. The executor passes it to every actor."""

    def put(self, data: bytes) -> Any:
        """Returns a reference that pickles small."""
        ...

    def get(self, reference: Any) -> bytes:
        """Raises ObjectLost when whoever kept the bytes is gone."""
        ...

    def node_address(self) -> str:
        """Where other actors reach this process: loopback, unless they are on several nodes."""
        ...
