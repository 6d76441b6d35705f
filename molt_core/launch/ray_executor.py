"""Executor `ray`: actors of a Ray cluster, a local one made for this run or a running one.

Ray is told nothing about plugins: each actor builds its part from the plan. Rollouts go into
Ray's object store and trainers fetch them there, so the driver never sees their tokens.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayTaskError,
)

from molt_core.api.executor import ActorRequest, Handle
from molt_core.api.run_options import RunOptions
from molt_core.errors import ActorLost, ObjectLost, PreflightError, RunError
from molt_core.launch.local_executor import LOOPBACK
from molt_core.launch.ray_nodes import check_nodes
from molt_core.launch.specs import RayOptions
from molt_core.plugins.factory import import_object

STOP_TIMEOUT_S = 30
PROBE_TIMEOUT_S = 10
FETCH_TIMEOUT_S = 300
"""For the tokens of one rollout, from another node's memory or disk."""
MAX_CALLS = 100_000
"""Calls in flight on one async actor; the loop bounds them, Ray must not."""
NUM_LOG_LINES = 15


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


class _Actor:
    """Runs in the actor's process: imports the factory only there, after the environment is set."""

    def __init__(self, request: ActorRequest) -> None:
        self._actor = import_object(request.factory)(RayStore(), *request.args)

    def pid(self) -> int:
        return os.getpid()

    def call(self, method: str, args: tuple[Any, ...]) -> Any:
        return getattr(self._actor, method)(*args)


class _AsyncActor:
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


def _probe(address: str) -> None:
    """Fail at once where nothing listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S).close()


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def num_nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())


class RayExecutor:
    def __init__(self, options: RayOptions, run: RunOptions) -> None:
        self._options = options
        self._run = run
        self._handles: list[RayHandle] = []
        self._num_gpus = 0.0
        self._numbers = itertools.count()

    @property
    def shares_files(self) -> bool:
        return self._run.ray_address is None

    async def start(self, packages: Sequence[str] = ()) -> None:
        await asyncio.to_thread(self._connect)
        if self._run.ray_address is not None:
            await asyncio.to_thread(check_nodes, packages, self._options.start_timeout_s)

    def _connect(self) -> None:
        run = self._run
        num_engines = run.min_engines or run.engines
        num_actors = num_engines + run.trainer_ranks + run.workers
        try:
            if run.ray_address is not None:
                _probe(run.ray_address)
                ray.init(address=run.ray_address, log_to_driver=False, logging_level="ERROR")
            else:
                ray.init(
                    # else Ray would join a cluster that happens to run on this machine
                    address="local",
                    # an actor is a place, not a core: all of them must fit on a small machine
                    num_cpus=max(os.cpu_count() or 1, run.engines + run.trainer_ranks + run.workers),
                    object_store_memory=self._options.object_store_mb * 2**20,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    configure_logging=True,
                    runtime_env={"env_vars": {"RAY_DEDUP_LOGS": "0"}},
                )
        except (OSError, RuntimeError, ValueError) as error:
            raise PreflightError(
                f"Ray could not be started or reached (--ray-address {run.ray_address or 'not given'}): "
                f"{first_line(error)}"
            ) from error
        resources = ray.cluster_resources()
        self._num_gpus = resources.get("GPU", 0.0)
        num_cpus = resources.get("CPU", 0.0)
        if num_cpus < num_actors:
            raise PreflightError(
                f"the Ray cluster has {num_cpus:g} CPUs; {num_engines} engines, {run.trainer_ranks} trainer ranks "
                f"and {run.workers} workers need {num_actors}. Use fewer, or a larger cluster"
            )
        wanted_gpus = num_engines + run.trainer_ranks
        if 0 < self._num_gpus < wanted_gpus:
            raise PreflightError(
                f"the Ray cluster has {self._num_gpus:g} GPUs; {num_engines} engines and {run.trainer_ranks} "
                f"trainer ranks need {wanted_gpus}"
            )

    async def spawn(self, request: ActorRequest) -> Handle:
        factory = import_object(request.factory)
        is_async = asyncio.iscoroutinefunction(getattr(factory, "stop", None))
        actor = (
            ray.remote(_AsyncActor if is_async else _Actor)
            .options(
                # numbered: the name of an actor that died may not be free yet
                name=f"molt-{os.getpid()}-{next(self._numbers)}-{request.name}",
                num_cpus=request.num_cpus,
                num_gpus=1 if request.wants_gpu and self._num_gpus else 0,
                max_restarts=0,
                scheduling_strategy="SPREAD" if request.role in self._options.spread else "DEFAULT",
                runtime_env={"env_vars": dict(request.env)},
                **({"max_concurrency": MAX_CALLS} if is_async else {}),
            )
            .remote(request)
        )
        try:
            pid = await self._pid(actor, request)
        except BaseException:
            # an error that someone keeps holds the actor too, which would take a place when there is one
            ray.kill(actor)
            raise
        handle = RayHandle(request.name, actor, pid)
        self._handles.append(handle)
        return handle

    async def _pid(self, actor: Any, request: ActorRequest) -> int:
        try:
            pid: int = await asyncio.wait_for(actor.pid.remote(), self._options.start_timeout_s)
        except (TimeoutError, GetTimeoutError) as error:
            raise PreflightError(
                f"{request.name} found no place within {self._options.start_timeout_s:g} s "
                f"(needs {request.num_cpus:g} CPU; free now: {ray.available_resources()})"
            ) from error
        except RayTaskError as error:
            raise error.cause from None
        except RayActorError as error:
            cause = getattr(error, "cause", None)
            raise ActorLost(
                f"{request.name} could not be built: {cause or error}", actor=request.name
            ) from None
        return pid

    async def retire(self, handle: Handle) -> None:
        self._handles = [each for each in self._handles if each is not handle]
        await handle.stop()

    async def stop(self) -> None:
        handles, self._handles = self._handles, []
        results = await asyncio.gather(*(handle.stop() for handle in handles), return_exceptions=True)
        await asyncio.to_thread(ray.shutdown)
        for result in results:
            if isinstance(result, BaseException):
                raise result
