"""JSON Lines files that survive a kill: one record a line, flushed as it is written.

A value that is not finite, which JSON can't hold, becomes null, and the record's `nonfinite`
says what it was. The reader forgives one thing only: a last line that was cut off.
Raises RunError where a record can't be written, as on a full disk.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from molt_core.errors import RunError

NONFINITE: Final = "nonfinite"


def to_line(record: Mapping[str, Any]) -> str:
    """One record as a line with its newline. Values are flat numbers, strings, or nested finite JSON."""
    # numpy scalars other than float64 are no Python numbers
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in record.items()}
    strange = {
        key: str(value)
        for key, value in plain.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    if strange:
        plain |= {**dict.fromkeys(strange), NONFINITE: strange}
    return json.dumps(plain, allow_nan=False, ensure_ascii=False) + "\n"


class JsonLines:
    """Appends to a file; a cut-off last line, left by a kill, is removed first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # unbuffered: what could not be written is not tried again when the file is closed
        self._file = path.open("ab+", buffering=0)
        _drop_torn_line(self._file.fileno())

    def write(self, record: Mapping[str, Any]) -> None:
        # one write call a line, so that a kill can cut off the last line and nothing else
        data = to_line(record).encode()
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as failure:
            raise RunError(f"{self._path} can't be written: {failure}", reason="disk") from failure

    def close(self) -> None:
        """May be called twice."""
        self._file.close()


def _drop_torn_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, size, 0)
    if not data.endswith(b"\n"):
        os.ftruncate(descriptor, data.rfind(b"\n") + 1)


def cut(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Take out the records that `keep` does not want, and a cut-off last line. The file is replaced whole."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")[:-1]
    kept = [line for line, record in zip(lines, read_json_lines(path), strict=True) if keep(record)]
    shorter = path.with_name(f".{path.name}.unfinished")
    shorter.write_bytes(b"".join(line + b"\n" for line in kept))
    shorter.replace(path)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """All complete records of a file, with non-finite values put back.

    Raises:
        ValueError: a line other than a cut-off last one is broken; names file and line.
    """
    *lines, torn = path.read_bytes().split(b"\n")
    del torn  # empty, or what a kill cut off
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record: dict[str, Any] = json.loads(line)
        except ValueError as failure:
            raise ValueError(f"{path}:{number}: {failure}") from failure
        for key, text in record.pop(NONFINITE, {}).items():
            record[key] = float(text)
        records.append(record)
    return records
