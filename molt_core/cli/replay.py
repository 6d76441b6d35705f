"""`molt replay RUN [--steps A-B]`: train recorded batches again, without an engine, and compare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from molt_core.api.findings import error
from molt_core.cli.resume import plan_of
from molt_core.errors import ConfigError, RunError
from molt_core.report.run_folder import RunFolder

USAGE = """\
usage: molt replay RUN [--steps A | --steps A-B]

Trains the batches that a run with --record has kept on the same weights once more, and says of each
step whether loss, gradient norm and weights are equal to the bit. Needs no engine; changes nothing.
Exit code 4 if something differs.
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
    run, steps = _words(argv)
    folder = RunFolder.open(run, locked=False)
    plan = plan_of(folder)

    import asyncio

    from molt_core.launch.prepared_model import prepare_model
    from molt_core.launch.replaying import recorded, replay

    wanted = recorded(folder, *steps)
    different = asyncio.run(replay(plan, prepare_model(plan), folder, wanted, print))
    if different:
        listed = ", ".join(map(str, different))
        raise RunError(f"{len(different)} of {len(wanted)} steps came out differently: {listed}")
    print(f"{len(wanted)} steps, all equal")
    return 0


def _words(argv: Sequence[str]) -> tuple[Path, tuple[int | None, int | None]]:
    words = [
        part for word in argv for part in (word.split("=", 1) if word.startswith("--steps=") else [word])
    ]
    steps: tuple[int | None, int | None] = (None, None)
    if "--steps" in words:
        place = words.index("--steps")
        given = words[place + 1] if place + 1 < len(words) else ""
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", given)
        if match is None:
            message = f"--steps must be a step or two, got {given!r}"
            raise ConfigError([error("M122", message, fix="--steps 3, or --steps 3-5")])
        steps = int(match[1]), int(match[2] or match[1])
        del words[place : place + 2]
    if len(words) != 1 or words[0].startswith("-"):
        raise ConfigError([error("M601", f"one run must be named, got {words}", fix="molt replay runs/NAME")])
    return Path(words[0]), steps
