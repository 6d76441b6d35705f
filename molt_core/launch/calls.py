"""Calls to actors: each with a deadline, several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from molt_core.api.executor import Handle
from molt_core.errors import ActorLost, first_cause


async def within(timeout_s: float, handle: Handle, method: str, *args: Any) -> Any:
    """Call an actor with a deadline.

    Raises:
        ActorLost: no answer in time; says of whom and to what.
    """
    try:
        async with asyncio.timeout(timeout_s) as deadline:
            return await handle.call(method, *args)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        message = f"{handle.name} did not answer {method}() within {timeout_s:g} s"
        raise ActorLost(message, actor=handle.name, reason="no_answer") from error


async def all_of(calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await all; the first error cancels the others and is raised itself, not wrapped in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_cause(errors) from None
    return [task.result() for task in tasks]
