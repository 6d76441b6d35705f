"""Agent `verifiers`: hands a row to the driver's process, which plays it against the session's URL and grades it.

One process for each verifiers environment and event loop, shared by all rollouts of a worker; it ends with the
worker. What fails there fails the rollout: an error never becomes a reward of 0.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

from molt_core.api.agent import AgentTask, Result, Session
from molt_core.api.options import NoOptions
from molt_plugin_verifiers.process import Driver, DriverError, Program
from molt_plugin_verifiers.tasks import PROGRAM

_DRIVERS: Final[WeakKeyDictionary[Any, dict[Program, asyncio.Task[Driver]]]] = WeakKeyDictionary()
"""By event loop."""


class VerifiersAgent:
    def __init__(self, _options: NoOptions) -> None: ...

    async def run(self, task: AgentTask, session: Session) -> Result:
        """Play one row.

        Raises:
            DriverError: the process did not start or died, the environment raised, or says that it failed.
        """
        row = dict(task.row)
        driver = await _driver(Program(**row.pop(PROGRAM)))
        played = await driver.ask(
            "rollout", row=row, base_url=session.base_url, api_key=session.api_key, model=session.model,
            timeout_s=task.timeout_s,
        )  # fmt: skip
        if played["failure"]:
            raise DriverError(played["failure"])
        return Result(reward=played["reward"], truncated=played["truncated"], info=played["metrics"])


async def _driver(program: Program) -> Driver:
    """The running process of this program; a dead one is started again."""
    drivers = _DRIVERS.setdefault(asyncio.get_running_loop(), {})
    starting = drivers.get(program)
    if starting is None or (starting.done() and not _is_alive(starting)):
        starting = drivers[program] = asyncio.create_task(Driver.start(program))
    # shielded: the rollout that came first may be cancelled, others wait for the same process
    return await asyncio.shield(starting)


def _is_alive(started: asyncio.Task[Driver]) -> bool:
    return not started.cancelled() and started.exception() is None and started.result().is_alive
