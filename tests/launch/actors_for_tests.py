"""Small actors that the executor tests start. A module of its own, because actors import it by name."""

from __future__ import annotations

import asyncio
import os
import time

from molt_core.errors import RunError


class Plain:
    """Blocking methods only."""

    def __init__(self, store, greeting):
        self.store = store
        self.greeting = greeting

    def greet(self, name):
        return f"{self.greeting}, {name}"

    def environment(self, name):
        return os.environ.get(name)

    def fetch(self, reference):
        return self.store.get(reference)

    def fail(self):
        raise RunError("lost it", reason="test")

    def die(self):
        os._exit(7)

    def hang(self):
        time.sleep(600)

    def pid(self):
        return os.getpid()

    def stop(self): ...


class Talker:
    """Async methods only; can call other actors."""

    def __init__(self, store):
        self.store = store
        self.cancelled = False

    async def relay(self, handle, name):
        return await handle.call("greet", name)

    async def keep(self, data):
        return self.store.put(data)

    async def sleep(self):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    async def was_cancelled(self):
        return self.cancelled

    async def stop(self): ...
