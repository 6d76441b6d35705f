"""One actor of the executor `ray`, from both sides: its process and store, and the handle that others call it by."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayTaskError,
)

from molt_core.api.executor import ActorRequest
from molt_core.errors import ActorLost, ObjectLost, RunError
from molt_core.launch.local_executor import LOOPBACK
from molt_core.plugins.factory import import_object

STOP_TIMEOUT_S: Final = 30
FETCH_TIMEOUT_S: Final = 300
"""For the tokens of one rollout, from another node's memory or disk."""
NUM_LOG_LINES: Final = 15


class RayStore:
    """References are Ray's own; bytes live in the node's shared memory, and on its disk when that is full."""

    def put(self, data: bytes) -> Any:
        try:
            return ray.put(data)
        except (ObjectStoreFullError, OutOfDiskError) as error:
            raise RunError(
                f"Ray's object store has no room for {len(data)} bytes: {first_line(error)}. Give it more memory "
                "(--executor.object-store-mb for a local cluster) or disk (RAY_TMPDIR)",
                reason="object_store_full",
            ) from error

    def get(self, reference: Any) -> bytes:
        try:
            data: bytes = ray.get(reference, timeout=FETCH_TIMEOUT_S)
        except (ObjectLostError, GetTimeoutError) as error:
            raise ObjectLost(f"{first_line(error)}") from error
        return data

    def node_address(self) -> str:
        address: str = ray.util.get_node_ip_address() if num_nodes() > 1 else LOOPBACK
        return address


class BlockingActor:
    """Runs in the actor's process: imports the factory only there, after the environment is set."""

    def __init__(self, request: ActorRequest) -> None:
        self._actor = import_object(request.factory)(RayStore(), *request.args)

    def pid(self) -> int:
        return os.getpid()

    def call(self, method: str, args: tuple[Any, ...]) -> Any:
        return getattr(self._actor, method)(*args)


class AsyncActor:
    """The same for actors with async methods; Ray runs a class on an event loop if any method is async."""

    def __init__(self, request: ActorRequest) -> None:
        self._actor = import_object(request.factory)(RayStore(), *request.args)

    async def pid(self) -> int:
        return os.getpid()

    async def call(self, method: str, args: tuple[Any, ...]) -> Any:
        return await getattr(self._actor, method)(*args)


class RayHandle:
    """Pickles small, so that workers can call engines directly."""

    def __init__(self, name: str, actor: Any, pid: int) -> None:
        self.name = name
        self._actor = actor
        self._pid = pid

    async def call(self, method: str, *args: Any) -> Any:
        reference = self._actor.call.remote(method, args)
        try:
            return await reference
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise
        except RayTaskError as error:
            if method == "start" and isinstance(error.cause, RunError):
                # libraries say on standard error why they can't start, and Ray keeps that in a file
                raise RunError(f"{error.cause}{self._last_output()}", reason=error.cause.reason) from None
            raise error.cause from None
        except RayActorError as error:
            raise ActorLost(
                f"{self.name} died during {method}(): {first_line(error)}{self._last_output()}",
                actor=self.name,
            ) from None
        except ObjectLostError as error:
            # its node died while the answer was still there
            raise ActorLost(
                f"the answer of {self.name} to {method}() is lost: {first_line(error)}", actor=self.name
            ) from None

    async def stop(self) -> None:
        try:
            await asyncio.wait_for(self.call("stop"), STOP_TIMEOUT_S)
        except (RunError, TimeoutError):
            # dead already, or it hangs; either way it is killed next
            pass
        finally:
            ray.kill(self._actor)

    def _last_output(self) -> str:
        """The end of what the process wrote, from Ray's session folder: on the driver, for its own node."""
        node = ray._private.worker._global_node
        if node is None:
            return ""
        logs = Path(node.get_session_dir_path()) / "logs"
        lines = [
            line
            for path in sorted(logs.glob(f"worker-*-{self._pid}.err"))
            for line in path.read_text(errors="replace").splitlines()
        ]
        return "".join(f"\n    {line}" for line in ["", *lines[-NUM_LOG_LINES:]]) if lines else ""


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def num_nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())
