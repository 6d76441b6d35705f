"""Fleets on virtual time: places, losses, restarts within bounds, members that come later."""

from __future__ import annotations

import asyncio

import pytest

from molt_core.api.events import ActorDied, ActorJoined
from molt_core.api.executor import ActorRequest
from molt_core.errors import ActorLost, PreflightError, RunError
from molt_core.launch.fleet import HOUR_S, SLACK, Fleet, choose
from molt_core.testing import run_virtual


class Actor:
    def __init__(self, name, number):
        self.name = name
        self.number = number
        """Of all that were started."""

    def lost(self):
        return ActorLost(f"{self.name} died", actor=self.name)


class ActorsByHand:
    """An executor whose actors do nothing. `no_place` and `broken` hold names that can't start at the moment."""

    def __init__(self):
        self.started, self.retired = [], []
        self.no_place, self.broken = set(), set()
        self.seconds = 1.0
        """That a start takes."""

    async def spawn(self, request):
        await asyncio.sleep(self.seconds)
        if request.name in self.no_place:
            raise PreflightError(f"{request.name} found no place")
        if request.name in self.broken:
            raise RunError(f"{request.name} has no model")
        self.started.append(Actor(request.name, len(self.started)))
        return self.started[-1]

    async def retire(self, handle):
        self.retired.append(handle)


class Scene:
    def __init__(self, size, *, max_restarts=3):
        self.actors, self.events, self.prepared = ActorsByHand(), [], []
        requests = [
            ActorRequest(role="workers", name=f"engine-{index}", factory="-") for index in range(size)
        ]
        self.fleet = Fleet(
            requests, self.actors, prepare=self.prepare, max_restarts=max_restarts, notify=self.events.append
        )

    async def prepare(self, handle):
        self.prepared.append(handle)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def lose(self, key):
        place = next(each for each in self.fleet.places() if each.key == key)
        assert self.fleet.report(place, place.handle.lost())

    @property
    def there(self):
        return [place.key for place in self.fleet.places()]


def test_work_goes_where_the_fewest_places_are_taken():
    assert choose([2, 1, 1], [0, 1, 2], None) == 1
    assert choose([2], [5], None) == 0


def test_work_goes_home_unless_it_is_much_busier_there_or_home_is_gone():
    assert choose([0, SLACK], [0, 1], home=1) == 1
    assert choose([0, SLACK + 1], [0, 1], home=1) == 0
    assert choose([0, 0], [0, 2], home=1) == 0


def test_a_member_that_is_lost_is_stopped_and_started_again_and_the_others_work_on():
    async def scenario():
        scene = Scene(2)
        await scene.fleet.start()
        first = scene.fleet.places()[0]
        scene.lose(0)
        assert scene.there == [1]
        await asyncio.sleep(10)
        assert scene.there == [0, 1]
        assert scene.actors.retired == [first.handle]
        assert scene.prepared == scene.actors.started
        (died,), (joined,) = scene.of(ActorDied), scene.of(ActorJoined)
        assert (died.name, died.cause, joined.name) == ("engine-0", "engine-0 died", "engine-0")
        await scene.fleet.close()

    run_virtual(scenario())


def test_a_lost_member_that_will_not_stop_is_left_and_started_anew():
    async def scenario():
        scene = Scene(1)

        async def hang(handle):
            await asyncio.sleep(1e9)

        scene.actors.retire = hang
        await scene.fleet.start()
        scene.lose(0)
        async with asyncio.timeout(HOUR_S), scene.fleet.place() as place:
            assert place.handle.number == 1
        await scene.fleet.close()

    run_virtual(scenario())


def test_a_loss_that_many_report_is_one_loss():
    async def scenario():
        scene = Scene(1)
        await scene.fleet.start()
        (place,) = scene.fleet.places()
        assert [scene.fleet.report(place, place.handle.lost()) for _ in range(3)] == [True] * 3
        await asyncio.sleep(10)
        # the last one is told when the next actor is already there
        assert scene.fleet.report(place, place.handle.lost())
        await asyncio.sleep(10)
        assert len(scene.actors.started) == 2
        assert not scene.fleet.report(place, ActorLost("?", actor="worker-0"))
        await scene.fleet.close()

    run_virtual(scenario())


def test_whoever_wants_a_place_waits_for_the_restart():
    async def scenario():
        scene = Scene(1)
        await scene.fleet.start()
        scene.lose(0)
        async with asyncio.timeout(60), scene.fleet.place() as place:
            assert place.handle.number == 1
            assert place.member.load == 1
        assert place.member.load == 0
        await scene.fleet.close()

    run_virtual(scenario())


def test_restarts_come_later_each_time_and_end_with_the_cause():
    async def scenario():
        scene = Scene(1, max_restarts=3)
        await scene.fleet.start()
        for _ in range(4):
            async with scene.fleet.place():
                scene.lose(0)
        with pytest.raises(RunError, match="engine-0 died"):
            async with scene.fleet.place():
                pass
        assert [event.restart_in_s for event in scene.of(ActorDied)] == [2, 4, 8]
        await scene.fleet.close()

    run_virtual(scenario())


def test_a_member_that_dies_too_often_rests_while_another_works():
    async def scenario():
        scene = Scene(2, max_restarts=1)
        await scene.fleet.start()
        for _ in range(2):
            scene.lose(0)
            await asyncio.sleep(10)
        assert scene.there == [1]
        await asyncio.sleep(HOUR_S)
        assert scene.there == [0, 1]
        await scene.fleet.close()

    run_virtual(scenario())


def test_a_member_that_is_started_after_its_rest_is_not_given_up_meanwhile():
    async def scenario():
        scene = Scene(2, max_restarts=1)
        await scene.fleet.start()
        for _ in range(2):
            scene.lose(0)
            await asyncio.sleep(10)
        scene.actors.seconds = 600.0
        await asyncio.sleep(HOUR_S)
        assert scene.there == [1]
        for _ in range(2):
            scene.lose(1)
            await asyncio.sleep(0)
            scene.actors.seconds = 1.0
            await asyncio.sleep(10)
        async with asyncio.timeout(HOUR_S), scene.fleet.place() as place:
            assert place.key == 0
        await scene.fleet.close()

    run_virtual(scenario())


def test_one_that_fails_when_enough_are_just_there_is_a_loss_and_no_end():
    async def scenario():
        scene = Scene(2)
        scene.actors.broken.add("engine-1")
        await scene.fleet.start(1)
        scene.lose(0)
        async with asyncio.timeout(60), scene.fleet.place() as place:
            assert place.key == 0
        await scene.fleet.close()

    run_virtual(scenario())


@pytest.mark.parametrize("max_restarts", [0, 3])
def test_what_can_not_be_made_ready_where_it_has_a_place_has_died(max_restarts):
    async def scenario():
        scene = Scene(2, max_restarts=max_restarts)

        async def prepare(handle):
            if handle.name == "engine-1":
                await asyncio.sleep(5)
                raise PreflightError("vLLM is not installed")

        scene.fleet._prepare = prepare
        await scene.fleet.start(1)
        await asyncio.sleep(HOUR_S / 2)
        assert len(scene.of(ActorDied)) == 1 + max_restarts
        await scene.fleet.close()

    run_virtual(scenario())


def test_without_restarts_one_that_waits_for_a_place_still_gets_it():
    """It is looked for while the others load, too."""

    async def scenario():
        scene = Scene(2, max_restarts=0)

        async def prepare(handle):
            await asyncio.sleep(20)

        scene.fleet._prepare = prepare
        scene.actors.no_place.add("engine-1")
        await scene.fleet.start(1)
        scene.actors.no_place.clear()
        await asyncio.sleep(200)
        assert scene.there == [0, 1]
        await scene.fleet.close()

    run_virtual(scenario())


def test_without_restarts_the_last_member_lost_ends_the_work():
    async def scenario():
        scene = Scene(2, max_restarts=0)
        await scene.fleet.start()
        scene.lose(1)
        await asyncio.sleep(2 * HOUR_S)
        assert scene.there == [0]
        scene.lose(0)
        with pytest.raises(RunError, match="engine-0 died"):
            async with scene.fleet.place():
                pass
        await scene.fleet.close()

    run_virtual(scenario())


def test_what_can_not_be_started_at_first_is_told_at_once():
    async def scenario():
        scene = Scene(2)
        scene.actors.broken.add("engine-1")
        with pytest.raises(RunError, match="engine-1 has no model"):
            await scene.fleet.start()
        assert len(asyncio.all_tasks()) == 1

    run_virtual(scenario())


def test_members_without_a_place_join_when_there_is_one():
    async def scenario():
        scene = Scene(3)
        scene.actors.no_place |= {"engine-1", "engine-2"}
        await scene.fleet.start(1)
        await asyncio.sleep(2 * HOUR_S)
        assert scene.there == [0]
        scene.actors.no_place.clear()
        await asyncio.sleep(200)
        assert scene.there == [0, 1, 2]
        await scene.fleet.close()

    run_virtual(scenario())


def test_a_member_that_joins_is_not_missed_by_whoever_holds_the_membership():
    """As a publish does: it either finds the new engine, or the engine gets the weights when it is admitted."""

    async def scenario(delay_s):
        scene = Scene(2)
        scene.actors.no_place.add("engine-1")
        versions, current = {}, [0]

        async def admit(handle):
            version = current[0]
            await asyncio.sleep(3)
            versions[handle.name] = version

        scene.fleet.admit = admit
        await scene.fleet.start(1)
        scene.actors.no_place.clear()
        await asyncio.sleep(delay_s)
        async with scene.fleet.membership:
            current[0] = 1
            await asyncio.sleep(2)
            versions |= {place.handle.name: 1 for place in scene.fleet.places()}
        await asyncio.sleep(100)
        assert versions == {"engine-0": 1, "engine-1": 1}
        await scene.fleet.close()

    for tenths in range(0, 120, 5):
        run_virtual(scenario(tenths / 10))


def test_the_cause_of_a_start_that_fails_later_counts_as_a_loss():
    async def scenario():
        scene = Scene(1, max_restarts=2)
        await scene.fleet.start()
        scene.actors.broken.add("engine-0")
        scene.lose(0)
        with pytest.raises(RunError, match="engine-0 has no model"):
            async with scene.fleet.place():
                pass
        assert len(scene.actors.started) == 1

    run_virtual(scenario())
