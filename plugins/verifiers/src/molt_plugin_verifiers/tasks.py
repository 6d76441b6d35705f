"""Environment `verifiers`: rows of a verifiers data set, each with the program that the agent runs it in.

Rows are read from the driver's process in pieces. An environment without rows for evaluation has one in five of its
rows held out; training goes through the others for ever, shuffled anew each time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import asdict

from molt_core.api.environment import Message, Reply, Row
from molt_core.api.findings import error
from molt_core.errors import ConfigError
from molt_plugin_verifiers.process import Driver, DriverError, Program
from molt_plugin_verifiers.spec import CODE, VerifiersOptions

PROGRAM: Final = "verifiers"
"""Column that says in which program a row is run."""
PIECE: Final = 512


class VerifiersTasks:
    def __init__(self, options: VerifiersOptions) -> None:
        self._program = Program(
            python=options.python, id=options.id, args=options.args, start_timeout_s=options.start_timeout_s
        )

    def tasks(self, split: str, seed: int) -> Iterator[Row]:
        """Rows as verifiers has them, and the column `verifiers`.

        Raises:
            ConfigError: verifiers or the environment can't be loaded there, or has no rows.
        """
        rows = _rows(self._program, split)
        order = random.Random(seed)
        while True:
            yield from ({**row, PROGRAM: asdict(self._program)} for row in rows)
            if split == "eval":
                return
            order.shuffle(rows)

    def prompt(self, row: Row) -> list[Message]:
        """None: the verifiers environment opens the conversation itself."""
        return []

    def score(self, row: Row, reply: Reply) -> float:
        raise NotImplementedError("verifiers environments are graded by themselves: --agent verifiers")


def _rows(program: Program, split: str) -> list[Mapping[str, Any]]:
    """Read them in a process and an event loop of their own, since this is called in any thread."""

    async def read() -> list[Mapping[str, Any]]:
        driver = await Driver.start(program)
        try:
            rows: list[Mapping[str, Any]] = []
            while True:
                piece = await driver.ask("rows", split=split, start=len(rows), count=PIECE)
                rows += piece["rows"]
                if len(rows) >= piece["num_rows"]:
                    return rows
        finally:
            await driver.stop()

    try:
        rows: list[Mapping[str, Any]] = _run(read())
    except DriverError as problem:
        raise ConfigError([error(CODE, str(problem), fix="--env.python, --env.id, --env.args")]) from problem
    if not rows:
        raise ConfigError([error(CODE, f"verifiers environment {program.id!r} has no rows for {split}")])
    return rows


def _run(work: Any) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
