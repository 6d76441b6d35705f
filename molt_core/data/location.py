"""What `--data` points at: a file of rows by its suffix, or a data set of the Hugging Face Hub.

In goes the text of the flag, out comes where the rows are. Opens nothing; it only looks
whether a path exists.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

from attrs import frozen

from molt_core.api.findings import Finding, error

FORMATS: Final[dict[str, Literal["jsonl", "csv", "parquet"]]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
HUB_ID: Final = re.compile(r"(?P<name>[\w-][\w.-]*/[\w.-]+)(?::(?P<config>[\w.-]+))?(?:@(?P<split>\S+))?")
WANTED: Final = "a .jsonl, .csv or .parquet file, or a Hugging Face id such as openai/gsm8k:main@train"


@frozen(kw_only=True)
class Location:
    format: Literal["jsonl", "csv", "parquet", "hub"]
    name: str
    """Path of the file, or `owner/name` on the Hub."""
    config: str | None = None
    """Hub only: name of the configuration."""
    split: str = "train"
    """Hub only."""


def is_file_or_hub(source: str) -> bool:
    """Whether `--data` names rows, existing or not, rather than an environment."""
    path = Path(source)
    return path.exists() or path.suffix.lower() in FORMATS or HUB_ID.fullmatch(source) is not None


def locate(source: str) -> Location | Finding:
    """Read `--data`; a finding when there is nothing of that name."""
    path = Path(source)
    known = FORMATS.get(path.suffix.lower())
    if known and path.is_file():
        return Location(format=known, name=source)
    if path.is_dir():
        return error("M511", f"data {source!r} is a folder, wanted {WANTED}")
    if path.exists():
        return error("M511", f"data {source!r} has the unknown suffix {path.suffix!r}, wanted {WANTED}")
    match = HUB_ID.fullmatch(source)
    if match and not known:
        return Location(
            format="hub", name=match["name"], config=match["config"], split=match["split"] or "train"
        )
    return error("M512", f"data file {source!r} does not exist", fix=_nearest(path))


def _nearest(path: Path) -> str:
    from difflib import get_close_matches

    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r} either"
    names = [each.name for each in path.parent.iterdir() if each.suffix.lower() in FORMATS]
    close = get_close_matches(path.name, names, n=1)
    return f"did you mean {str(path.parent / close[0])!r}?" if close else f"give {WANTED}"
