"""One actor in a child process, for the local executor. Calls go through a pipe, one at a time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from molt_core.api.executor import ActorRequest, Store
from molt_core.errors import ActorLost
from molt_core.plugins.factory import import_object

STOP_TIMEOUT_S = 20


class ChildProcess:
    """Handle on an actor in a spawned process."""

    def __init__(self, request: ActorRequest, store: Store) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = request.name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, request, store), name=request.name, daemon=True
        )
        self._process.start()
        theirs.close()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=request.name)

    async def call(self, method: str, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._call, method, args)

    def _call(self, method: str, args: tuple[Any, ...]) -> Any:
        try:
            self._pipe.send((method, args))
            result, error = self._pipe.recv()
        except (EOFError, OSError) as gone:
            self._process.join(1)
            raise ActorLost(
                f"{self.name} died during {method}(), exit code {self._process.exitcode}", actor=self.name
            ) from gone
        if error is not None:
            raise error
        return result

    async def stop(self) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.call("stop")
        except ActorLost:
            pass  # it is dead already
        except TimeoutError:
            # whoever waits for its answer hears that it died
            self._process.kill()
        finally:
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._thread.shutdown()
        self._pipe.close()
        self._process.join(STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, request: ActorRequest, store: Store) -> None:
    # Ctrl-C reaches the whole terminal group; the driver decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(request.env)
    actor: Any = None
    reply: tuple[Any, Exception | None]
    while True:
        try:
            method, args = pipe.recv()
        except EOFError:
            return
        try:
            actor = actor or import_object(request.factory)(store, *request.args)
            reply = (getattr(actor, method)(*args), None)
        except Exception as error:  # noqa: BLE001 - isolation point: whatever the actor raised is the caller's
            reply = (None, error)
        pipe.send(reply)
