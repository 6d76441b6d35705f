"""The sampler over fleets: where rollouts go, and that a lost actor costs none."""

from __future__ import annotations

import asyncio
import gc
import weakref
from itertools import chain
from types import SimpleNamespace

import pytest

from molt_core.api.executor import ActorRequest
from molt_core.errors import ActorLost, RunError
from molt_core.launch.fleet import Fleet
from molt_core.launch.sampling import RemoteSampler
from molt_core.testing import run_virtual


class Actor:
    """A worker or an engine; a worker takes a second for a rollout, and looks at its engine when that is over."""

    def __init__(self, name):
        self.name = name
        self.dead = False
        self.engines = {}
        self.done = []

    async def call(self, method, *args):
        if method == "connect":
            self.engines[args[0]] = args[1]
            return None
        request, key = args
        engine = self.engines[key]
        await asyncio.sleep(1)
        for actor in (self, engine):
            if actor.dead:
                raise ActorLost(f"{actor.name} died", actor=actor.name)
        engine.done.append(request.rollout_id)
        self.done.append(request.rollout_id)
        return Summary(request.rollout_id)


class Summary(str):
    """Can be referred to weakly."""


class Spawner:
    def __init__(self):
        self.started = {}

    async def spawn(self, request):
        self.started.setdefault(request.name, []).append(Actor(request.name))
        return self.started[request.name][-1]

    async def retire(self, handle): ...


async def ready(handle): ...


async def fleets(num_workers, num_engines, max_restarts=3):
    spawner = Spawner()
    made = []
    for role, size in (("worker", num_workers), ("engine", num_engines)):
        requests = [
            ActorRequest(role="workers", name=f"{role}-{index}", factory="-") for index in range(size)
        ]
        made.append(
            Fleet(requests, spawner, prepare=ready, max_restarts=max_restarts, notify=lambda event: None)
        )
        await made[-1].start()
    return spawner, RemoteSampler(*made), made


def request(group, member=0):
    return SimpleNamespace(rollout_id=f"{group}-{member}", group_id=str(group), timeout_s=60.0)


async def run(scenario, *sizes, **options):
    spawner, sampler, made = await fleets(*sizes, **options)
    try:
        return await scenario(spawner.started, sampler)
    finally:
        for fleet in made:
            await fleet.close()


def test_siblings_go_to_one_engine_and_groups_to_the_idlest():
    async def scenario(started, sampler):
        await asyncio.gather(
            *(sampler.sample(request(group, member)) for group in range(4) for member in range(4))
        )
        return [sorted({each.split("-")[0] for each in started[f"engine-{n}"][0].done}) for n in range(2)]

    assert run_virtual(run(scenario, 3, 2)) == [["0", "2"], ["1", "3"]]


def test_one_large_group_is_spread_when_its_engine_is_much_busier():
    async def scenario(started, sampler):
        await asyncio.gather(*(sampler.sample(request(0, member)) for member in range(40)))
        return [len(started[f"engine-{n}"][0].done) for n in range(2)]

    assert run_virtual(run(scenario, 1, 2)) == [24, 16]


@pytest.mark.parametrize("victim", ["engine-0", "worker-0"])
def test_rollouts_of_a_lost_actor_are_run_again_and_come_back_once(victim):
    async def scenario(started, sampler):
        rollouts = [asyncio.create_task(sampler.sample(request(n))) for n in range(8)]
        await asyncio.sleep(0.5)
        started[victim][0].dead = True
        ids = await asyncio.gather(*rollouts)
        await asyncio.sleep(60)
        ids += await asyncio.gather(*(sampler.sample(request(n)) for n in range(8, 16)))
        return started, ids

    started, ids = run_virtual(run(scenario, 2, 2))
    assert ids == [f"{number}-0" for number in range(16)]
    assert len(started[victim]) == 2
    assert started[victim][1].done, "the new one works"
    engines = [each.done for name, actors in started.items() if "engine" in name for each in actors]
    if victim == "engine-0":
        assert sorted(chain(*engines)) == sorted(ids)


def test_nothing_is_kept_of_actors_that_are_gone_whoever_reported_them():
    async def scenario(started, sampler):
        for _ in range(3):
            await asyncio.gather(*(sampler.sample(request(n)) for n in range(4)))
            # as a publish does, to which an engine gives no answer
            place = sampler._engines.places()[0]
            sampler._engines.report(place, ActorLost("engine-0 is gone", actor="engine-0"))
            await asyncio.sleep(100)
        await asyncio.gather(*(sampler.sample(request(n)) for n in range(4)))
        return len(started["engine-0"]), len(sampler._connected), sampler._homes

    assert run_virtual(run(scenario, 2, 1)) == (4, 2, {})


def test_a_loss_does_not_keep_the_rollout_that_met_it():
    """Its summary holds its tokens in the store."""

    async def scenario(started, sampler):
        running = asyncio.create_task(sampler.sample(request(0)))
        await asyncio.sleep(0.5)
        started["engine-0"][0].dead = True
        summary = weakref.ref(await running)
        del running
        await asyncio.sleep(1)
        gc.collect()
        return summary()

    assert run_virtual(run(scenario, 1, 1)) is None


def test_a_rollout_that_gives_up_waiting_for_an_engine_leaves_nothing():
    async def scenario(started, sampler):
        place = sampler._engines.places()[0]
        sampler._engines.report(place, ActorLost("engine-0 is gone", actor="engine-0"))
        waiting = asyncio.create_task(sampler.sample(request(0)))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait({waiting})
        return sampler._homes

    assert run_virtual(run(scenario, 1, 1)) == {}


def test_a_worker_that_never_answers_is_lost_too():
    async def scenario(started, sampler):
        hung = started["worker-0"][0]
        answer = hung.call

        async def hang(method, *args):
            return await (asyncio.sleep(1e9) if method == "sample" else answer(method, *args))

        hung.call = hang
        return await sampler.sample(request(0)), asyncio.get_running_loop().time()

    rollout_id, seconds = run_virtual(run(scenario, 1, 1))
    assert rollout_id == "0-0"
    assert 120 < seconds < 130


def test_when_no_engine_is_left_the_cause_is_raised():
    async def scenario(started, sampler):
        started["engine-0"][0].dead = True
        await sampler.sample(request(0))

    with pytest.raises(RunError, match="engine-0 died"):
        run_virtual(run(scenario, 1, 1, max_restarts=0))
