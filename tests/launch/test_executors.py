"""Both executors keep one contract: calls, errors, deaths, cancellation, and nothing left behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import psutil
import pytest
import ray
from attrs import evolve
from ray.exceptions import ObjectLostError

from molt_core.api.executor import ActorRequest
from molt_core.api.options import NoOptions
from molt_core.api.run_options import RunOptions
from molt_core.errors import ActorLost, ObjectLost, PreflightError, RunError
from molt_core.launch import child_process
from molt_core.launch.local_executor import LocalExecutor
from molt_core.launch.ray_actor import RayHandle
from molt_core.launch.ray_executor import RayExecutor
from molt_core.launch.specs import RayOptions

HERE = "tests.launch.actors_for_tests"


def plain(name="plain-0", **changes):
    return ActorRequest(role="workers", name=name, factory=f"{HERE}:Plain", args=("hello",), **changes)


def executor(kind: str, **options):
    run = RunOptions(model="m", **options)
    return (
        LocalExecutor(NoOptions(), run)
        if kind == "local"
        else RayExecutor(RayOptions(object_store_mb=80), run)
    )


async def fetch_for_ever(actor, reference):
    async with asyncio.timeout(30):
        while True:
            await actor.call("fetch", reference)
            await asyncio.sleep(0.2)


async def one_that_found_no_place_takes_none_later(started: RayExecutor) -> None:
    usual = started._options
    free = ray.available_resources()["CPU"]
    everything = await started.spawn(plain("worker-1", num_cpus=free))
    started._options = evolve(usual, start_timeout_s=1.0)
    with pytest.raises(PreflightError, match="worker-2 found no place within 1 s") as refused:
        await started.spawn(plain("worker-2"))
    started._options = evolve(usual, start_timeout_s=20.0)
    await started.retire(everything)
    await started.spawn(plain("worker-2", num_cpus=free))
    # it was there all the time, and with it all that its traceback holds
    assert refused.tb


async def contract(kind: str) -> None:
    started = executor(kind)
    await started.start()
    try:
        greeter = await started.spawn(plain(env={"MOLT_TEST_VARIABLE": "set"}))
        talker = await started.spawn(ActorRequest(role="workers", name="talker-0", factory=f"{HERE}:Talker"))
        apart = await started.spawn(plain("rank-1", own_process=True))

        assert await greeter.call("greet", "you") == "hello, you"
        assert await greeter.call("environment", "MOLT_TEST_VARIABLE") == "set"
        assert await talker.call("relay", greeter, "friend") == "hello, friend"

        reference = await talker.call("keep", b"heavy")
        assert await greeter.call("fetch", reference) == b"heavy"
        assert await apart.call("fetch", reference) == b"heavy"

        with pytest.raises(RunError, match="lost it") as caught:
            await greeter.call("fail")
        assert caught.value.reason == "test"

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await talker.call("sleep")
        async with asyncio.timeout(10):
            while not await talker.call("was_cancelled"):
                await asyncio.sleep(0.05)

        pid = await apart.call("pid")
        with pytest.raises(ActorLost, match="rank-1 died during die"):
            await apart.call("die")
        with pytest.raises(RunError, match="rank-1 died"):
            await apart.call("greet", "ghost")
        with pytest.raises(RunError, match="rank-1 died"):
            await talker.call("relay", apart, "ghost")
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

        if kind == "ray":
            # more than the store holds
            pieces = [await talker.call("keep", bytes([number]) * 2**23) for number in range(15)]
            for number, piece in enumerate(pieces):
                assert await greeter.call("fetch", piece) == bytes([number]) * 2**23
            # what an actor has put into the store is its own, and is lost with it
            await started.retire(talker)
            with pytest.raises(ObjectLost):
                await fetch_for_ever(greeter, pieces[0])
            again = await started.spawn(
                ActorRequest(role="workers", name="talker-0", factory=f"{HERE}:Talker")
            )
            assert await again.call("was_cancelled") is False

            await one_that_found_no_place_takes_none_later(started)
    finally:
        await started.stop()
    await started.stop()


@pytest.mark.real
@pytest.mark.parametrize("kind", ["local", "ray"])
def test_contract(kind):
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    asyncio.run(contract(kind))
    # multiprocessing keeps one resource tracker per interpreter, for all
    left = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.pid not in before and "resource_tracker" not in " ".join(process.cmdline())
    ]
    _, alive = psutil.wait_procs(left, timeout=15)
    assert alive == []


def test_an_answer_that_is_lost_with_its_node_is_the_loss_of_the_actor():
    async def lost(method, args):
        raise ObjectLostError("ab" * 28, None, "")

    handle = RayHandle("engine-0", SimpleNamespace(call=SimpleNamespace(remote=lost)), pid=1)
    with pytest.raises(ActorLost, match=r"the answer of engine-0 to generate\(\) is lost") as caught:
        asyncio.run(handle.call("generate"))
    assert caught.value.actor == "engine-0"


@pytest.mark.parametrize("kind", ["local", "ray"])
def test_an_actor_that_fails_to_stop_does_not_keep_the_others_from_it(kind):
    class Failing:
        async def stop(self):
            raise ValueError("can't")

    class Slow:
        stopped = False

        async def stop(self):
            await asyncio.sleep(0.05)
            self.stopped = True

    started, slow = executor(kind), Slow()
    setattr(started, "_handles" if kind == "ray" else "_actors", [Failing(), slow])
    with pytest.raises(ValueError, match="can't"):
        asyncio.run(started.stop())
    assert slow.stopped


@pytest.mark.real
def test_a_child_process_that_hangs_is_killed_when_it_is_to_stop(monkeypatch):
    monkeypatch.setattr(child_process, "STOP_TIMEOUT_S", 0.5)

    async def scenario():
        started = executor("local")
        actor = await started.spawn(plain("rank-1", own_process=True))
        pid = await actor.call("pid")
        hanging = asyncio.create_task(actor.call("hang"))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(20):
            await started.stop()
            with pytest.raises(ActorLost, match=r"rank-1 died during hang\(\)"):
                await hanging
        return pid

    assert not psutil.pid_exists(asyncio.run(scenario()))


@pytest.mark.real
def test_ray_that_can_not_be_reached_is_said_with_its_address():
    with pytest.raises(PreflightError, match="--ray-address 127.0.0.1:1"):
        asyncio.run(executor("ray", ray_address="127.0.0.1:1").start())
