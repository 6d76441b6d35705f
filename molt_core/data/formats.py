"""One reader for each format: from a file to numbered rows, a broken row as the reason it is broken.

pyarrow and datasets are imported only for their formats. Lines of JSONL end at "\\n" and nowhere
else: U+2028 and its like may stand inside strings. Does not look at columns.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from molt_core.api.environment import Row
from molt_core.api.findings import error
from molt_core.data.location import Location
from molt_core.errors import ConfigError

CSV_FIELD_CHARS: Final = 2**24
"""Longest field of a CSV file; the standard library's own limit is 128 KiB."""

Numbered = tuple[int, "Row | str"]
"""Line number, or for parquet number of the row from 1, with the row or with what is wrong."""


def numbered_rows(location: Location) -> Iterator[Numbered]:
    """Rows of a local file.

    Raises:
        ConfigError: the file can't be opened or read.
    """
    try:
        yield from {"jsonl": _jsonl, "csv": _csv, "parquet": _parquet}[location.format](location.name)
    except OSError as failure:
        raise ConfigError(
            [error("M513", f"data file {location.name!r} can't be read: {failure}")]
        ) from failure


def _jsonl(path: str) -> Iterator[Numbered]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield number, _json_row(text)


def _json_row(line: bytes) -> Row | str:
    try:
        value = json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as failure:
        return f"not UTF-8: {failure.reason} at byte {failure.start}"
    except json.JSONDecodeError as failure:
        hint = "; a file of one JSON array must be written as one object a line" if line[:1] == b"[" else ""
        # not its own column, which is 1 where the line ends too early
        return f"not JSON: {failure.msg} at column {failure.pos + 1}{hint}"
    except (ValueError, RecursionError) as failure:
        return f"not JSON: {failure}"
    return value if isinstance(value, dict) else f"a JSON {type(value).__name__}, wanted an object"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _csv(path: str) -> Iterator[Numbered]:
    csv.field_size_limit(CSV_FIELD_CHARS)
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, restkey="", strict=True)
        try:
            for row in reader:
                num_fields = sum(value is not None for name, value in row.items() if name)
                num_fields += len(row.get("") or [])
                wanted = len(reader.fieldnames or ())
                if num_fields != wanted:
                    yield reader.line_num, f"{num_fields} fields, wanted {wanted} as in the header"
                else:
                    yield reader.line_num, row
        except (csv.Error, UnicodeDecodeError) as failure:
            yield reader.line_num + 1, f"not CSV: {failure}"


def _parquet(path: str) -> Iterator[Numbered]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except pyarrow.ArrowInvalid as failure:
        yield 1, f"not parquet: {failure}"


def hub_rows(location: Location) -> Sequence[Row]:
    """Rows of a data set of the Hub; downloads what is not in its cache.

    Raises:
        ConfigError: it can't be loaded.
    """
    import datasets

    try:
        rows: Sequence[Row] = datasets.load_dataset(location.name, location.config, split=location.split)
    except Exception as failure:  # the library and its network stack raise classes of many packages
        message = f"data set {location.name!r} can't be loaded: {type(failure).__name__}: {failure}"
        raise ConfigError(
            [error("M514", message, fix="check the name, the split and the network")]
        ) from failure
    return rows
