"""Tasks in a reproducible order, from rows or from an environment that makes its own.

A source is asked for one task at a time. `state` is small JSON that goes into checkpoints;
`restore` puts a fresh source of the same data and seed exactly there. That the data is the same is
told by a fingerprint: of all rows, or of those that the environment has made so far. Reads no files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from attrs import frozen

from molt_core.api.environment import Row
from molt_core.api.findings import error
from molt_core.errors import ConfigError

Split = Literal["train", "eval"]


@frozen(kw_only=True)
class Task:
    """One prompt to answer."""

    task_id: str
    """`<split>/<number>`: the row's number in its data, or the number that an environment made it as."""
    row: Row
    epoch: int = 0
    """How often the source had been gone through before; `(task_id, epoch)` is unique in a run."""


class TaskSource(Protocol):
    def next(self) -> Task | None:
        """The next task; None when there is none any more."""
        ...

    def state(self) -> dict[str, Any]:
        """Where the source is, as JSON."""
        ...

    def restore(
        self, state: Mapping[str, Any], unfinished: Sequence[tuple[str, int]] = ()
    ) -> tuple[Task, ...]:
        """Go where `state` was taken.

        Args:
            unfinished: task id and epoch of tasks that the source had given by then.

        Returns:
            Those tasks, made again.

        Raises:
            ConfigError: the state belongs to other data or another seed.
        """
        ...


class RowTasks:
    """Rows of a data set.

    Args:
        split: `train` goes through the rows for ever, shuffled anew each time; `eval` goes through
            them once, in their own order.
    """

    def __init__(self, rows: Sequence[Row], seed: int, *, split: Split = "train") -> None:
        self._rows = rows
        self._seed = seed
        self._split = split
        self._epoch = 0
        self._position = 0
        self._order = self._shuffle()

    def next(self) -> Task | None:
        if self._position == len(self._rows):
            if self._split == "eval" or not self._rows:
                return None
            self._epoch += 1
            self._position = 0
            self._order = self._shuffle()
        index = int(self._order[self._position])
        self._position += 1
        return Task(task_id=_task_id(self._split, index), row=self._rows[index], epoch=self._epoch)

    def state(self) -> dict[str, Any]:
        return {**self._identity(), "epoch": self._epoch, "position": self._position}

    def restore(
        self, state: Mapping[str, Any], unfinished: Sequence[tuple[str, int]] = ()
    ) -> tuple[Task, ...]:
        _check_identity(self._identity(), state)
        self._epoch = state["epoch"]
        self._position = state["position"]
        self._order = self._shuffle()
        return tuple(
            Task(task_id=task_id, row=self._rows[int(task_id.partition("/")[2])], epoch=epoch)
            for task_id, epoch in unfinished
        )

    def _identity(self) -> dict[str, Any]:
        return {
            "source": "rows", "split": self._split, "seed": self._seed, "num_rows": len(self._rows),
            "fingerprint": self._fingerprint,
        }  # fmt: skip

    @cached_property
    def _fingerprint(self) -> str:
        # a data set of the Hub knows its own, and reading all of it may mean decoding images
        own = getattr(self._rows, "_fingerprint", None)
        return str(own or _short(_hash(self._rows)))

    def _shuffle(self) -> npt.NDArray[np.int64]:
        if self._split == "eval":
            return np.arange(len(self._rows))
        return np.random.default_rng([self._seed, self._epoch]).permutation(len(self._rows))


class MakesTasks(Protocol):
    """The part of an environment that is needed here."""

    def tasks(self, split: Split, seed: int) -> Iterator[Row]: ...


class EnvironmentTasks:
    """Tasks that an environment makes; ends when the environment's tasks end."""

    def __init__(self, environment: MakesTasks, split: Split, *, seed: int) -> None:
        self._environment = environment
        self._split: Split = split
        self._seed = seed
        self._count = 0
        self._rows = environment.tasks(split, seed)
        self._made = hashlib.sha256()

    def next(self) -> Task | None:
        row = next(self._rows, None)
        if row is None:
            return None
        self._count += 1
        _hash([row], self._made)
        return Task(task_id=_task_id(self._split, self._count - 1), row=row)

    def state(self) -> dict[str, Any]:
        return {**self._identity(), "count": self._count, "fingerprint": _short(self._made)}

    def restore(
        self, state: Mapping[str, Any], unfinished: Sequence[tuple[str, int]] = ()
    ) -> tuple[Task, ...]:
        _check_identity(self._identity(), state)
        wanted = [task_id for task_id, _ in unfinished]
        again: dict[str, Task] = {}
        self._rows = self._environment.tasks(self._split, self._seed)
        self._count, self._made = 0, hashlib.sha256()
        # an iterator of a stranger has no state to load: replay what was consumed
        for number in range(state["count"]):
            task = self.next()
            if task is None:
                message = (
                    f"the environment made {number} tasks where the checkpoint had used {state['count']}"
                )
                raise ConfigError([error("M522", message)])
            if task.task_id in wanted:
                again[task.task_id] = task
        _check_identity({"fingerprint": _short(self._made)}, state)
        return tuple(again[task_id] for task_id in wanted)

    def _identity(self) -> dict[str, Any]:
        return {"source": "environment", "split": self._split, "seed": self._seed}


def _task_id(split: str, number: int) -> str:
    return f"{split}/{number:06d}"


def _hash(rows: Iterable[Row], into: hashlib._Hash | None = None) -> hashlib._Hash:
    """Hash rows, one after the other; of values that JSON does not know, the type alone."""
    into = into or hashlib.sha256()
    for row in rows:
        text = json.dumps(row, sort_keys=True, default=lambda value: type(value).__name__)
        into.update(f"{text}\n".encode())
    return into


def _short(digest: hashlib._Hash) -> str:
    """Enough to tell data sets apart, and to be read in a message."""
    return digest.hexdigest()[:16]


def _check_identity(here: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    findings = [
        error(
            "M521",
            f"the checkpoint was made with data of {name} {state.get(name)!r}, this run has {value!r}",
            fix=(
                "bring back the rows that it was made with; or a new run: "
                "molt run RUN/config.toml --model RUN --run-name NAME"
            ),
        )
        for name, value in here.items()
        if state.get(name) != value
    ]
    if findings:
        raise ConfigError(findings)
