"""`molt replay RUN [--steps A-B]`: train recorded batches again, without an engine, and compare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import attrs

from molt_core.api.findings import error
from molt_core.cli.resume import plan_of
from molt_core.errors import ConfigError, RunError
from molt_core.report.run_folder import RunFolder

USAGE = """\
usage: molt replay RUN [--steps A | --steps A-B] [--trainer-ranks N]

Trains once more, from the same weights, on the batches that a run with --record has kept, and says of
each step whether loss, gradient norm and weights are equal to the bit. Needs no engine; changes nothing.
Exit code 4 if something differs.

--trainer-ranks: as many as recorded the first of these steps. Another number spreads the batches anew, and
loss and gradient norm are compared within a percent, because sums have another order.
"""


def main(argv: Sequence[str]) -> int:
    """Exit code 0 when every step is equal.

    Raises:
        ConfigError: RUN is no run, or holds no such steps.
        RunError: a step differs.
    """
    if set(argv) & {"-h", "--help"}:
        print(USAGE, end="")
        return 0
    run, steps, ranks = _words(argv)
    folder = RunFolder.open(run, locked=False)
    plan = plan_of(folder)

    import asyncio

    from molt_core.launch.prepared_model import prepare_model
    from molt_core.launch.record import num_recorded_ranks
    from molt_core.launch.replaying import recorded, replay

    wanted = recorded(folder, *steps)
    recorded_ranks = num_recorded_ranks(folder.rollouts, wanted.start)
    ranks = ranks or recorded_ranks
    plan = attrs.evolve(plan, run={**plan.run, "trainer_ranks": ranks})
    different = asyncio.run(replay(plan, prepare_model(plan), folder, wanted, print))
    if different:
        listed = ", ".join(map(str, different))
        raise RunError(f"{len(different)} of {len(wanted)} steps came out differently: {listed}")
    told = "1 step, equal" if len(wanted) == 1 else f"{len(wanted)} steps, all equal"
    print(told if ranks == recorded_ranks else f"{told} within a percent")
    return 0


def _words(argv: Sequence[str]) -> tuple[Path, tuple[int | None, int | None], int | None]:
    """Run folder, first and last step, ranks."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--") else [word])]
    steps: tuple[int | None, int | None] = (None, None)
    if (given := _taken(words, "--steps")) is not None:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", given)
        if match is None:
            message = f"--steps must be a step or two, got {given!r}"
            raise ConfigError([error("M122", message, fix="--steps 3, or --steps 3-5")])
        steps = int(match[1]), int(match[2] or match[1])
    ranks = None
    if (given := _taken(words, "--trainer-ranks")) is not None:
        if not re.fullmatch(r"[1-9]\d*", given):
            message = f"--trainer-ranks must be a whole number >= 1, got {given!r}"
            raise ConfigError([error("M122", message, fix="--trainer-ranks 1")])
        ranks = int(given)
    if len(words) != 1 or words[0].startswith("-"):
        raise ConfigError([error("M601", f"one run must be named, got {words}", fix="molt replay runs/NAME")])
    return Path(words[0]), steps, ranks


def _taken(words: list[str], flag: str) -> str | None:
    """The value of a flag, which is taken out with it; empty without one, None where the flag is not there."""
    if flag not in words:
        return None
    place = words.index(flag)
    value = words[place + 1] if place + 1 < len(words) else ""
    del words[place : place + 2]
    return value
