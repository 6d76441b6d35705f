"""The buffer: who may start, who is taken, and how waiting ends."""

from __future__ import annotations

import asyncio

from molt_core.experience import Group
from molt_core.loop.buffer import Buffer
from molt_core.testing import run_virtual


def group(index: int) -> Group:
    return Group(group_id=str(index), task_id="", index=index, dispatched_at_version=0, rollouts=())


def test_admission_stops_at_the_staleness_bound_and_goes_on_after_a_round():
    async def scenario() -> list[int]:
        buffer = Buffer(prompts_per_step=1, max_staleness=1, rounds=10)
        tickets = [await buffer.admit(), await buffer.admit()]
        third = asyncio.create_task(buffer.admit())
        await asyncio.sleep(1)
        assert not third.done()
        buffer.deliver(tickets[0], group(0))
        await buffer.take()
        buffer.end_round(version=1)
        return [ticket.version for ticket in [*tickets, await third]]

    assert run_virtual(scenario()) == [0, 0, 1]


def test_a_dropped_group_frees_its_place():
    async def scenario() -> int:
        buffer = Buffer(prompts_per_step=1, max_staleness=0, rounds=1)
        buffer.drop(await buffer.admit())
        return (await buffer.admit()).index

    assert run_virtual(scenario()) == 1


def test_the_end_of_the_data_gives_a_short_last_round_and_then_none():
    async def scenario() -> tuple[int, int]:
        buffer = Buffer(prompts_per_step=2, max_staleness=3, rounds=10)
        for index in range(3):
            buffer.deliver(await buffer.admit(), group(index))
        buffer.exhaust()
        sizes = []
        for version in (1, 2, 3):
            sizes.append(len(await buffer.take()))
            buffer.end_round(version)
        return tuple(sizes)

    assert run_virtual(scenario()) == (2, 1, 0)


def test_closing_wakes_everyone_with_nothing():
    async def scenario() -> tuple[object, ...]:
        buffer = Buffer(prompts_per_step=1, max_staleness=0, rounds=1)
        await buffer.admit()
        waiting = [asyncio.create_task(buffer.admit()), asyncio.create_task(buffer.take())]
        await asyncio.sleep(1)
        buffer.close()
        return tuple(await asyncio.gather(*waiting))

    assert run_virtual(scenario()) == (None, ())


def test_idle_time_counts_only_while_nothing_is_in_flight():
    async def scenario() -> float:
        buffer = Buffer(prompts_per_step=1, max_staleness=0, rounds=5)
        ticket = await buffer.admit()
        await asyncio.sleep(7)
        buffer.deliver(ticket, group(0))
        await buffer.take()
        await asyncio.sleep(5)
        buffer.end_round(version=1)
        await buffer.admit()
        return buffer.statistics().idle_s

    assert run_virtual(scenario()) == 5
