"""The policy over actors: what a publish waits for, and what is left to do when a rank fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from molt_core.api.engine import Weights
from molt_core.api.executor import ActorRequest
from molt_core.api.run_options import RunOptions
from molt_core.errors import ActorLost, RunError
from molt_core.launch import remote
from molt_core.launch.fleet import Fleet
from molt_core.launch.remote import RemotePolicy
from molt_core.launch.trainer_host import PublishedWeights
from molt_core.testing import run_virtual


class Actor:
    """A rank or an engine; `does` holds what some of its methods do."""

    def __init__(self, name, **does):
        self.name = name
        self.does = does
        self.asked = []

    async def call(self, method, *args):
        self.asked.append(method)
        return await self.does[method](*args)


class Spawner:
    def __init__(self, **does):
        self.does = does

    async def spawn(self, request):
        return Actor(request.name, **self.does)

    async def retire(self, handle): ...


def fleet(num_engines, **does):
    requests = [
        ActorRequest(role="engines", name=f"engine-{index}", factory="-") for index in range(num_engines)
    ]

    async def ready(handle): ...

    return Fleet(requests, Spawner(**does), prepare=ready, max_restarts=3, notify=lambda event: None)


def policy_of(ranks, engines, folder="-", **options):
    run = RunOptions(model="m", **options)
    return RemotePolicy(run, ranks, engines, Path(folder), shares_files=True)


async def publishes(version, *flags):
    return PublishedWeights(weights=Weights(version=version, path=Path("w"), num_bytes=1), reference=None)


@pytest.mark.parametrize(("partial", "engines_left"), [(False, 1), (True, 0)])
def test_an_engine_that_drains_may_take_as_long_as_a_rollout(partial, engines_left):
    async def scenario():
        async def drain(*args):
            await asyncio.sleep(1900.0)

        engines = fleet(1, update_weights=drain)
        policy = policy_of(
            [Actor("trainer-0", publish=publishes)], engines, partial=partial, rollout_timeout_s=2000.0
        )
        await engines.start()
        await policy.publish(1)
        left = len(engines.places())
        await engines.close()
        return left

    assert run_virtual(scenario()) == engines_left


@pytest.mark.parametrize("failure", [ActorLost("trainer-1 died", actor="trainer-1"), ValueError("no memory")])
def test_ranks_that_wait_for_one_that_failed_are_not_asked_to_save(failure, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "TRAIN_TIMEOUT_S", 0.2)

    async def scenario():
        async def nothing(*args):
            return []

        async def hang(*args):
            await asyncio.sleep(60)

        async def fail(*args):
            raise failure

        waiting = Actor("trainer-0", fetch=nothing, step=hang, keep_rollouts=hang)
        policy = policy_of([waiting, Actor("trainer-1", fetch=nothing, step=fail)], fleet(0), tmp_path)
        with pytest.raises(type(failure)):
            await policy.step([None, None])
        with pytest.raises(RunError, match="a trainer rank has failed"):
            await policy.save(3, {}, {})
        return waiting.asked

    assert asyncio.run(scenario()) == ["fetch", "step"]
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_is_alone_and_raises_can_still_save(tmp_path):
    async def scenario():
        async def nothing(*args):
            return []

        async def fail(*args):
            raise ValueError("the loss is no number")

        ranks = [
            Actor("trainer-0", fetch=nothing, step=fail, keep_rollouts=nothing, save=nothing, export=nothing)
        ]
        policy = policy_of(ranks, fleet(0), tmp_path)
        with pytest.raises(ValueError, match="no number"):
            await policy.step([None])
        return await (await policy.save(3, {}, {}))

    assert asyncio.run(scenario()).name == "step_3"
