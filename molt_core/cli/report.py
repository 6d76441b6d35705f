"""`molt report RUN`: what a run was, learned, took and lost, from the files of its folder. Changes nothing.

Also of a run that goes on, and of an evaluation.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from molt_core.api.findings import error
from molt_core.errors import ConfigError
from molt_core.report.json_lines import read_json_lines
from molt_core.report.run_folder import RunFolder
from molt_core.report.summary import report_lines

WIDE = 160
"""Columns where the output is no terminal."""


def main(argv: Sequence[str]) -> int:
    """Exit code 0.

    Raises:
        ConfigError: RUN is no run, or one of its files is broken.
    """
    parser = argparse.ArgumentParser(
        prog="molt report", description="Show what a run was, learned, took and lost.", allow_abbrev=False
    )
    parser.add_argument("run", metavar="RUN", help="folder of a run, e.g. runs/NAME")
    folder = RunFolder.open(Path(parser.parse_args(argv).run), locked=False)
    names = sorted(folder.checkpoints.glob("step_*"), key=lambda path: (len(path.name), path.name))
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
    try:
        lines = report_lines(
            json.loads(folder.plan.read_text(encoding="utf-8")), _records(folder.metrics), _records(folder.ledger),
            [path.name for path in names], columns, plain=not sys.stdout.encoding.lower().startswith("utf"),
        )  # fmt: skip
    except ValueError as failure:
        message = f"a file of the run can't be read: {failure}"
        raise ConfigError([error("M606", message, fix="restore or remove the file")]) from failure
    print("\n".join([f"{'run':<12}{folder.path}", *lines]))
    return 0


def _records(path: Path) -> list[dict[str, Any]]:
    return read_json_lines(path) if path.exists() else []
