"""Order of tasks: complete, shuffled, the same for the same seed, and exact across a restore."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molt_core.api.environment import Row
from molt_core.data.tasks import EnvironmentTasks, RowTasks, Split, Task, TaskSource
from molt_core.errors import ConfigError

ROWS = [{"n": number} for number in range(7)]


class Numbers:
    """Makes `count` random numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def tasks(self, split: Split, seed: int) -> Iterator[Row]:
        random = Random(f"{split}{seed}")
        return ({"n": random.randrange(1000)} for _ in range(self._count))


def take(source: TaskSource, count: int) -> list[Task]:
    return [task for _ in range(count) if (task := source.next()) is not None]


def test_each_epoch_has_every_row_once_in_an_order_of_its_own() -> None:
    tasks = take(RowTasks(ROWS, seed=0), 21)
    epochs = [[task.row["n"] for task in tasks[start : start + 7]] for start in (0, 7, 14)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [task.epoch for task in tasks] == [0] * 7 + [1] * 7 + [2] * 7


def test_ids_belong_to_rows_and_are_unique_together_with_the_epoch() -> None:
    tasks = take(RowTasks(ROWS, seed=1), 21)
    assert all(task.task_id == f"train/{task.row['n']:06d}" for task in tasks)
    assert len({(task.task_id, task.epoch) for task in tasks}) == 21


def test_equal_seeds_give_equal_orders_and_others_do_not() -> None:
    orders = [[task.row["n"] for task in take(RowTasks(ROWS, seed=seed), 14)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_evaluation_goes_through_the_rows_once_in_their_own_order() -> None:
    tasks = take(RowTasks(ROWS, seed=3, split="eval"), 20)
    assert [task.task_id for task in tasks] == [f"eval/{number:06d}" for number in range(7)]


def test_no_rows_give_no_tasks() -> None:
    assert RowTasks([], seed=0).next() is None


def test_an_environment_ends_where_its_tasks_end() -> None:
    source = EnvironmentTasks(Numbers(3), "eval", seed=0)
    assert [task.task_id for task in take(source, 9)] == ["eval/000000", "eval/000001", "eval/000002"]
    assert source.next() is None


@pytest.mark.parametrize(
    "make", [lambda: RowTasks(ROWS, seed=5), lambda: EnvironmentTasks(Numbers(60), "train", seed=5)]
)
@given(st.integers(0, 30), st.integers(0, 20))
def test_a_restored_source_goes_on_exactly_there(
    make: Callable[[], TaskSource], before: int, after: int
) -> None:
    source = make()
    taken = take(source, before)
    state = json.loads(json.dumps(source.state()))
    restored = make()
    take(restored, 2)
    given = [(task.task_id, task.epoch) for task in taken[::2]]
    assert restored.restore(state, given) == tuple(taken[::2]), "unfinished ones are made again"
    assert take(restored, after) == take(source, after)
    assert restored.state() == source.state()


def test_a_state_of_other_data_or_another_seed_is_refused_with_both_sides() -> None:
    state = RowTasks(ROWS, seed=0).state()
    with pytest.raises(ConfigError) as refused:
        RowTasks(ROWS[:5], seed=1).restore(state)
    seed, num_rows, fingerprint = (finding.message for finding in refused.value.findings)
    assert seed == "the checkpoint was made with data of seed 0, this run has 1"
    assert num_rows == "the checkpoint was made with data of num_rows 7, this run has 5"
    assert "fingerprint" in fingerprint


def test_one_changed_row_is_another_data_set_wherever_it_stands() -> None:
    state = RowTasks(ROWS, seed=0).state()
    with pytest.raises(ConfigError, match="data of fingerprint '"):
        RowTasks([*ROWS[:6], {"n": 7}], seed=0).restore(state)


def test_an_environment_whose_tasks_have_changed_is_refused() -> None:
    class Others(Numbers):
        def tasks(self, split: Split, seed: int) -> Iterator[Row]:
            return super().tasks(split, seed + 1)

    source = EnvironmentTasks(Numbers(9), "train", seed=0)
    take(source, 3)
    with pytest.raises(ConfigError, match="data of fingerprint '"):
        EnvironmentTasks(Others(9), "train", seed=0).restore(source.state())


def test_an_environment_that_makes_fewer_tasks_than_were_used_is_refused() -> None:
    source = EnvironmentTasks(Numbers(9), "train", seed=0)
    take(source, 8)
    with pytest.raises(ConfigError, match="made 4 tasks where the checkpoint had used 8"):
        EnvironmentTasks(Numbers(4), "train", seed=0).restore(source.state())
