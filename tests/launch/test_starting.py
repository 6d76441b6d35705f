"""Starting and stopping the actors of a plan."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from attrs import evolve

from molt_core.errors import Interrupted
from molt_core.launch.prepared_model import PreparedModel
from molt_core.launch.starting import running
from molt_core.loop.stop import StopSignal
from tests.launch.test_model_process import plan_of

MADE: list[Interruptible] = []


class Interruptible:
    """An executor that is told to stop while it connects to its cluster."""

    shares_files = True

    def __init__(self, options, run):
        self.did = []
        MADE.append(self)

    async def start(self, packages=()):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        self.did.append("started")

    async def spawn(self, request):
        await asyncio.sleep(60)

    async def stop(self):
        self.did.append("stopped")


def test_a_stop_while_the_cluster_is_reached_ends_the_run_in_order():
    def unhandled(*_):
        pytest.fail("nobody listens to signals")

    before = signal.signal(signal.SIGTERM, unhandled)
    plan = plan_of("--model", "tiny", "--max-tokens", "8")
    part = evolve(plan.one("executors"), factory=f"{__name__}:Interruptible")
    plan = evolve(plan, parts={**plan.parts, "executors": (part,)})
    model = PreparedModel(folder=Path("m"), max_length=64, end_token_ids=(2,))

    async def scenario():
        async with running(plan, model, StopSignal(), lambda event: None):
            pytest.fail("it started")

    try:
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            asyncio.run(scenario())
    finally:
        signal.signal(signal.SIGTERM, before)
    (executor,) = MADE
    assert executor.did == ["started", "stopped"]
