"""Executor `local`: everything on this machine, in one process tree.

Actors live in the driver's process, async ones on its event loop and blocking ones each on a
thread of its own, so breakpoints work and tracebacks are whole. Only actors that can't share
a process (further ranks of a process group) become child processes.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from molt_core.api.executor import ActorRequest, Handle
from molt_core.api.options import NoOptions
from molt_core.api.run_options import RunOptions
from molt_core.launch.child_process import ChildProcess
from molt_core.plugins.factory import import_object

LOOPBACK = "127.0.0.1"


class InProcessStore:
    """References are the bytes themselves."""

    def put(self, data: bytes) -> bytes:
        return data

    def get(self, reference: bytes) -> bytes:
        return reference

    def node_address(self) -> str:
        return LOOPBACK


class LocalHandle:
    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self._actor = actor
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def call(self, method: str, *args: Any) -> Any:
        function = getattr(self._actor, method)
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*args))

    async def stop(self) -> None:
        await self.call("stop")
        self._thread.shutdown(wait=True)


class LocalExecutor:
    shares_files = True

    def __init__(self, _options: NoOptions, _run: RunOptions) -> None:
        self._actors: list[LocalHandle | ChildProcess] = []

    async def start(self, packages: Sequence[str] = ()) -> None:
        """Nothing to connect to, and no other machine."""

    async def spawn(self, request: ActorRequest) -> Handle:
        store = InProcessStore()
        if request.own_process:
            actor: LocalHandle | ChildProcess = await asyncio.to_thread(ChildProcess, request, store)
        else:
            # libraries read these when they are first imported, which happens inside the factory
            os.environ.update(request.env)
            actor = LocalHandle(request.name, import_object(request.factory)(store, *request.args))
        self._actors.append(actor)
        return actor

    async def retire(self, handle: Handle) -> None:
        self._actors = [each for each in self._actors if each is not handle]
        await handle.stop()

    async def stop(self) -> None:
        actors, self._actors = self._actors, []
        results = await asyncio.gather(*(actor.stop() for actor in actors), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
