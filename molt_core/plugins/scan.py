"""Which plugins are installed, from package metadata alone: no plugin code is imported.

One pass over the installed distributions. METADATA, the slow part, is parsed only for those
that own an entry point of ours. The result is sorted, because the order of the scan is the
order of the file system. A distribution that is listed twice (an editable install beside an
egg-info, a leftover of an old version) counts once: the first on the path, which is the one
that Python imports. Whether a candidate works is not known here: `molt_core.plugins.load` tells.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata

from attrs import frozen

from molt_core.api.findings import Finding, Source
from molt_core.api.spec import GROUP_PREFIX, SLOTS
from molt_core.plugins.names import is_valid, nearest, normalized, normalized_dist


@frozen(order=True)
class Candidate:
    """One entry point: a plugin that could be chosen."""

    slot: str
    name: str
    """As the entry point spells it."""
    dist: str
    """Normalised distribution name."""
    version: str
    value: str
    """`module:attribute` of its spec."""

    @property
    def owner(self) -> str:
        return f"{self.dist} {self.version}"

    @property
    def qualified(self) -> str:
        """The spelling that means this candidate whatever else is installed."""
        return f"{self.dist}/{self.name}"


@frozen
class Scan:
    """What is installed, and what is odd about it (warnings; a scan never fails)."""

    candidates: tuple[Candidate, ...]
    """Sorted by slot, name, distribution."""
    findings: tuple[Finding, ...] = ()

    def of(self, slot: str) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.candidates if candidate.slot == slot)


def scan(path: Sequence[str] | None = None) -> Scan:
    """Read the metadata of every distribution on `path` (default `sys.path`), once per process."""
    return _scan(tuple(sys.path if path is None else path))


@cache
def _scan(path: tuple[str, ...]) -> Scan:
    findings: list[Finding] = []
    kept: dict[tuple[str, str, str], Candidate] = {}
    for name, found in sorted(_owners(path, findings).items()):
        copies = [
            dist for dist in metadata.distributions(name=name, path=list(path)) if dist.metadata["Version"]
        ]
        for candidate in _candidates(name, _one_of(name, copies or [found], findings), findings):
            first = kept.setdefault((candidate.slot, normalized(candidate.name), candidate.dist), candidate)
            if first != candidate:
                message = (
                    f"{candidate.owner} offers {candidate.name!r} twice in slot {candidate.slot}; "
                    f"{first.value} is used, {candidate.value} is not"
                )
                findings.append(_warning("M112", message, f"report it to the authors of {candidate.dist}"))
    return Scan(tuple(sorted(kept.values())), tuple(findings))


def _owners(path: tuple[str, ...], findings: list[Finding]) -> dict[str, metadata.Distribution]:
    """The distributions that mention one of our groups, by normalised name."""
    owners: dict[str, metadata.Distribution] = {}
    for dist in metadata.distributions(path=list(path)):
        if f"[{GROUP_PREFIX}" not in _entry_points_text(dist):
            continue
        # both are None, whatever their types say, when an interrupted uninstall left half a folder
        if dist.metadata["Name"] and dist.metadata["Version"]:
            owners.setdefault(normalized_dist(dist.metadata["Name"]), dist)
        else:
            message = f"a package in {dist.locate_file('')} offers plugins but has no name or version"
            findings.append(
                _warning("M113", message, "reinstall it: an install or uninstall was interrupted")
            )
    return owners


def _entry_points_text(dist: metadata.Distribution) -> str:
    try:
        return dist.read_text("entry_points.txt") or ""
    except (OSError, UnicodeDecodeError):
        # someone else's unreadable metadata must not lock the user out; it can't hold a plugin of ours
        return ""


def _one_of(name: str, copies: list[metadata.Distribution], findings: list[Finding]) -> metadata.Distribution:
    """The copy that counts: first on the path, and among those in one folder the highest version."""
    folder = copies[0].locate_file("")
    chosen = max((copy for copy in copies if copy.locate_file("") == folder), key=_numbers)
    if len({(copy.version, _entry_points_text(copy)) for copy in copies}) > 1:
        message = f"{name} is installed {len(copies)} times; version {chosen.version} is used"
        places = tuple(Source(f"version {copy.version}", str(copy.locate_file(""))) for copy in copies)
        fix = f"pip uninstall {name} until nothing is left of it, then install it once"
        findings.append(Finding("warning", "M111", message, places, fix))
    return chosen


def _numbers(dist: metadata.Distribution) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", dist.version)]


def _candidates(name: str, dist: metadata.Distribution, findings: list[Finding]) -> Iterator[Candidate]:
    owner = f"{name} {dist.version}"
    try:
        points = sorted(dist.entry_points, key=lambda point: (point.group, point.name, point.value))
    except (ValueError, TypeError) as error:
        message = f"the entry points of {owner} can't be read: {error}"
        findings.append(_warning("M114", message, f"reinstall {name}"))
        return
    for point in points:
        if not point.group.startswith(GROUP_PREFIX):
            continue
        slot = point.group.removeprefix(GROUP_PREFIX)
        if slot not in SLOTS:
            meant = nearest(slot, SLOTS)
            message = f"{owner} offers {point.name!r} for slot {slot!r}, which this molt-core does not have"
            fix = f"its authors may have meant {meant!r}" if meant else "upgrade molt-core, or ignore it"
            findings.append(_warning("M115", message, fix))
        elif not is_valid(point.name):
            message = (
                f"{owner} offers {point.name!r} in slot {slot}; wanted lower case letters, digits, + . _ -"
            )
            findings.append(_warning("M116", message, f"report it to the authors of {name}"))
        else:
            yield Candidate(slot, point.name, name, dist.version, point.value)


def _warning(code: str, message: str, fix: str) -> Finding:
    return Finding("warning", code, message, fix=fix)
