"""Rows from JSONL, CSV, parquet or the Hugging Face Hub, read and checked.

In goes the text of `--data`; out come rows (mappings of JSON values by column) or findings
that name file, line and reason. Parsing is in `formats`; what columns mean, environments say.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from attrs import define

from molt_core.api import columns as names
from molt_core.api.environment import Row
from molt_core.api.findings import Finding, error
from molt_core.data.formats import hub_rows, numbered_rows
from molt_core.data.location import Location, is_file_or_hub, locate
from molt_core.errors import ConfigError

__all__ = ["check_rows", "is_file_or_hub", "read_rows"]

MAX_SHOWN: Final = 10
"""Broken lines that are reported one by one; the rest is counted."""
PACKAGES: Final = {"parquet": ("pyarrow", "parquet"), "hub": ("datasets", "hub")}
"""Format to the package that reads it and the extra of molt-core that brings it."""


def read_rows(source: str) -> Sequence[Row]:
    """All rows of `source`.

    Raises:
        ConfigError: nothing there, nothing in it, a package is missing, or broken lines (all of them).
    """
    location = _located(source)
    if location.format == "hub":
        found = hub_rows(location)
        if not len(found):
            raise ConfigError([_empty(source)])
        return found
    rows: list[Row] = []
    broken: list[tuple[int, str]] = []
    for number, row in numbered_rows(location):
        if isinstance(row, str):
            broken.append((number, row))
        else:
            rows.append(row)
    if broken:
        raise ConfigError(_broken_lines(source, broken))
    if not rows:
        raise ConfigError([_empty(source)])
    return rows


def check_rows(source: str, columns: Sequence[Sequence[str]]) -> list[Finding]:
    """Everything that is wrong with `source`, all at once. Reads local files only.

    Args:
        columns: for each needed column its accepted names, as in `EnvironmentSpec.columns`.
    """
    try:
        location = _located(source)
        if location.format == "hub":
            message = f"data set {source!r} is looked up on the Hub when the run starts"
            return [Finding("note", "M519", message)]
        return _check_local(location, columns)
    except ConfigError as failure:
        return list(failure.findings)


def _check_local(location: Location, columns: Sequence[Sequence[str]]) -> list[Finding]:
    broken: list[tuple[int, str]] = []
    lacking: dict[int, _Lacking] = {}
    num_rows = 0
    for number, row in numbered_rows(location):
        if isinstance(row, str):
            broken.append((number, row))
            continue
        num_rows += 1
        for index, accepted in enumerate(columns):
            if all(names.value_at(row, name) is None for name in accepted):
                lacking.setdefault(index, _Lacking(number, row)).num_rows += 1
            elif tuple(accepted) == names.PROMPT and (wrong := _wrong_prompt(row)):
                broken.append((number, wrong))
    findings = _broken_lines(location.name, broken)
    findings += [
        _missing_column(location.name, columns[index], each, num_rows)
        for index, each in sorted(lacking.items())
    ]
    return findings or ([] if num_rows else [_empty(location.name)])


@define
class _Lacking:
    """Rows without a column: the first of them, and how many."""

    number: int
    row: Row
    num_rows: int = 0


def _located(source: str) -> Location:
    """Where the rows are, of a format that can be read here. Raises ConfigError."""
    location = locate(source)
    if isinstance(location, Finding):
        raise ConfigError([location])
    package, extra = PACKAGES.get(location.format, ("", ""))
    try:
        if package:
            version(package)
    except PackageNotFoundError as failure:
        message = f"data {location.name!r} needs the package {package}, which is not installed"
        raise ConfigError([error("M515", message, fix=f"pip install 'molt-core[{extra}]'")]) from failure
    return location


def _wrong_prompt(row: Row) -> str:
    try:
        names.messages(row)
    except ValueError as failure:
        return str(failure)
    return ""


def _broken_lines(source: str, broken: Sequence[tuple[int, str]]) -> list[Finding]:
    findings = [error("M516", f"{source}:{number}: {reason}") for number, reason in broken[:MAX_SHOWN]]
    if len(broken) > MAX_SHOWN:
        findings.append(error("M516", f"{source}: {len(broken) - MAX_SHOWN} more broken lines"))
    return findings


def _missing_column(source: str, accepted: Sequence[str], lacking: _Lacking, num_rows: int) -> Finding:
    from difflib import get_close_matches

    which = f"{lacking.num_rows} of {num_rows} {'row has' if num_rows == 1 else 'rows have'}"
    message = f"{source}:{lacking.number}: {which} no column {' or '.join(accepted)}"
    present = [str(name) for name in lacking.row]
    close = [near for name in accepted for near in get_close_matches(name, present, n=1)]
    fix = f"the row has {', '.join(present) or 'no columns'}" + (f"; rename {close[0]}?" if close else "")
    return error("M517", message, fix=fix)


def _empty(source: str) -> Finding:
    return error("M518", f"data {source!r} holds no rows")
