"""Starting vLLM and ending all of it: the process tree below one AsyncLLM, and what it died of."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Final, TypeVar

import psutil

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

T = TypeVar("T")

SHUTDOWN_S: Final = 10.0
"""How long EngineCore gets to end by itself before it is killed."""


def without_interrupts(launch: Callable[[], T]) -> T:
    """Call `launch` so that the processes it starts ignore the terminal's Ctrl-C.

    Ctrl-C reaches every process of the terminal's foreground group, and EngineCore would shut
    down at once while the run still wants to drain and save. A blocked signal is inherited by
    new processes and, unlike a handler, stays blocked; EngineCore still obeys SIGTERM. The mask
    belongs to this thread only, so call it in a thread that may miss SIGINT.
    """
    # multiprocessing's tracker unblocks SIGINT when it starts, which would be at the first process
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return launch()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def family(llm: AsyncLLM) -> list[psutil.Process]:
    """All processes below `llm`: EngineCore, and workers that it has started."""
    processes: list[psutil.Process] = []
    for process in llm.engine_core.resources.engine_manager.processes:
        with suppress(psutil.NoSuchProcess):
            core = psutil.Process(process.pid)
            processes += [core, *core.children(recursive=True)]
    return processes


async def release_callers(llm: AsyncLLM) -> None:
    """End every `generate` that still waits, with EngineDeadError: vLLM's shutdown would leave them waiting."""
    from vllm.v1.engine.exceptions import EngineDeadError

    handler = llm.output_handler
    if handler is not None:
        # first, or it would log the shutdown as a failure
        handler.cancel()
        await asyncio.wait({handler})
    llm.output_processor.propagate_error(EngineDeadError())


def end(llm: AsyncLLM) -> None:
    """Shut vLLM down, kill what is left after `SHUTDOWN_S`, and wait until all of it is gone."""
    processes = family(llm)
    llm.shutdown(timeout=SHUTDOWN_S)
    _gone, alive = psutil.wait_procs(processes, timeout=SHUTDOWN_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=SHUTDOWN_S)


def cause_of_death(llm: AsyncLLM) -> str:
    """What is known about why EngineCore is gone."""
    for process in llm.engine_core.resources.engine_manager.processes:
        code = process.exitcode
        if code is None:
            continue
        if code < 0:
            return f"process EngineCore (pid {process.pid}) was killed by {signal.Signals(-code).name}"
        return f"process EngineCore (pid {process.pid}) ended with exit code {code}; its last words are above"
    return "process EngineCore reported a fatal error; its traceback is above"
