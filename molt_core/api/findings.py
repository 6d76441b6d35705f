"""One thing that is wrong, or worth knowing, about a run before it starts."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

Level = Literal["error", "warning", "note"]


@frozen
class Source:
    """Where a value came from or who states a fact."""

    what: str
    """The statement itself, e.g. `temperature = 0` or `grpo needs groups of several rollouts`."""
    origin: str = ""
    """Flag, `file:line`, or `distribution version`."""

    def __str__(self) -> str:
        return f"{self.what}  ({self.origin})" if self.origin else self.what


@frozen
class Finding:
    """A checked fact about the plan. Errors stop the run before any process starts."""

    level: Level
    code: str
    """Stable identifier, e.g. `M201`; listed in docs/findings.md."""
    message: str
    """One sentence: what, where, got, wanted."""
    because: tuple[Source, ...] = ()
    fix: str = ""
    """What to do about it, as a flag or a command."""


def error(code: str, message: str, *because: Source, fix: str = "") -> Finding:
    """An error finding; the usual way to build one."""
    return Finding("error", code, message, because, fix)


def warning(code: str, message: str, *because: Source, fix: str = "") -> Finding:
    """As `error`, of what runs but is probably not meant."""
    return Finding("warning", code, message, because, fix)
