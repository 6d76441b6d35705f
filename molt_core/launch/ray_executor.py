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
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from molt_core.api.executor import ActorRequest, Handle
from molt_core.api.run_options import RunOptions
from molt_core.errors import ActorLost, PreflightError
from molt_core.launch.ray_actor import AsyncActor, BlockingActor, RayHandle, first_line
from molt_core.launch.ray_nodes import check_nodes
from molt_core.launch.specs import RayOptions
from molt_core.plugins.factory import import_object

PROBE_TIMEOUT_S = 10
MAX_CALLS = 100_000
"""Calls in flight on one async actor; the loop bounds them, Ray must not."""


def _probe(address: str) -> None:
    """Fail at once where nothing listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S).close()


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
            ray.remote(AsyncActor if is_async else BlockingActor)
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
