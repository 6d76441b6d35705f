"""Specs of the core's own executors."""

from __future__ import annotations

from typing import Literal

from molt_core.api.options import option, options
from molt_core.api.spec import ExecutorSpec


@options
class RayOptions:
    """Knobs of the `ray` executor."""

    object_store_mb: int = option(400, help="shared memory of a local cluster for rollouts, in MiB", ge=80)
    spread: tuple[Literal["engines", "ranks", "workers"], ...] = option(
        ("engines", "workers"),
        help="roles that are spread over the nodes; the others fill one node after the other",
    )
    start_timeout_s: float = option(
        120.0, help="seconds to wait for the cluster and for a place for each actor", gt=0
    )


LOCAL = ExecutorSpec(
    name="local",
    summary="one process tree on this machine; a debugger works in it",
    api=1,
    factory="molt_core.launch.local_executor:LocalExecutor",
)

RAY = ExecutorSpec(
    name="ray",
    summary="Ray actors, on this machine or on a cluster (--ray-address)",
    api=1,
    options=RayOptions,
    factory="molt_core.launch.ray_token:ray_executor",
)
