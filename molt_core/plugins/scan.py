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

from molt_core.api.findings import Finding, Source, warning
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


@frozen
class _Copy:
    """One metadata folder. A distribution normally has one."""

    name: str
    """Normalised; empty when an interrupted uninstall left half a folder, as is the version."""
    version: str
    folder: str
    entry_points: str
    """Text of entry_points.txt."""
    dist: metadata.Distribution

    @classmethod
    def read(cls, dist: metadata.Distribution) -> _Copy:
        headers = dist.metadata  # parsed anew on every access, and the slow part of a scan
        name, version = headers["Name"] or "", headers["Version"] or ""
        return cls(normalized_dist(name), version, str(dist.locate_file("")), _entry_points_text(dist), dist)


@cache
def _scan(path: tuple[str, ...]) -> Scan:
    findings: list[Finding] = []
    kept: dict[tuple[str, str, str], Candidate] = {}
    for name, found in sorted(_owners(path, findings).items()):
        copies = [_Copy.read(dist) for dist in metadata.distributions(name=name, path=list(path))]
        # a folder that does not bear its own name is found by the pass over all, not by name
        whole = [copy for copy in copies if copy.version] or [found]
        for candidate in _candidates(_one_of(whole, findings), findings):
            first = kept.setdefault((candidate.slot, normalized(candidate.name), candidate.dist), candidate)
            if first != candidate:
                message = f"{candidate.owner} offers {candidate.name!r} twice in slot {candidate.slot}"
                message += f"; {first.value} is used, {candidate.value} is not"
                findings.append(warning("M112", message, fix=f"report it to the authors of {candidate.dist}"))
    return Scan(tuple(sorted(kept.values())), tuple(findings))


def _owners(path: tuple[str, ...], findings: list[Finding]) -> dict[str, _Copy]:
    """The distributions that mention one of our groups, by normalised name."""
    owners: dict[str, _Copy] = {}
    for dist in metadata.distributions(path=list(path)):
        if f"[{GROUP_PREFIX}" not in _entry_points_text(dist):
            continue
        copy = _Copy.read(dist)
        if copy.name and copy.version:
            owners.setdefault(copy.name, copy)
        else:
            message = f"a package in {copy.folder} offers plugins but has no name or version"
            fix = "reinstall it: an install or uninstall was interrupted"
            findings.append(warning("M113", message, fix=fix))
    return owners


def _entry_points_text(dist: metadata.Distribution) -> str:
    try:
        return dist.read_text("entry_points.txt") or ""
    except (OSError, UnicodeDecodeError):
        # someone else's unreadable metadata must not lock the user out; it can't hold a plugin of ours
        return ""


def _one_of(copies: list[_Copy], findings: list[Finding]) -> _Copy:
    """The copy that counts: first on the path, and among those in one folder the highest version."""
    chosen = max((copy for copy in copies if copy.folder == copies[0].folder), key=_numbers)
    if len({(copy.version, copy.entry_points) for copy in copies}) > 1:
        message = f"{chosen.name} is installed {len(copies)} times; version {chosen.version} is used"
        places = tuple(Source(f"version {copy.version}", copy.folder) for copy in copies)
        fix = f"pip uninstall {chosen.name} until nothing is left of it, then install it once"
        findings.append(warning("M111", message, *places, fix=fix))
    return chosen


def _numbers(copy: _Copy) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", copy.version)]


def _candidates(copy: _Copy, findings: list[Finding]) -> Iterator[Candidate]:
    owner = f"{copy.name} {copy.version}"
    try:
        points = sorted(copy.dist.entry_points, key=lambda point: (point.group, point.name, point.value))
    except (ValueError, TypeError) as error:
        message = f"the entry points of {owner} can't be read: {error}"
        findings.append(warning("M114", message, fix=f"reinstall {copy.name}"))
        return
    for point in points:
        if not point.group.startswith(GROUP_PREFIX):
            continue
        slot = point.group.removeprefix(GROUP_PREFIX)
        if slot not in SLOTS:
            meant = nearest(slot, SLOTS)
            message = f"{owner} offers {point.name!r} for slot {slot!r}, which this molt-core does not have"
            fix = f"its authors may have meant {meant!r}" if meant else "upgrade molt-core, or ignore it"
            findings.append(warning("M115", message, fix=fix))
        elif not is_valid(point.name):
            message = (
                f"{owner} offers {point.name!r} in slot {slot}; wanted lower case letters, digits, + . _ -"
            )
            findings.append(warning("M116", message, fix=f"report it to the authors of {copy.name}"))
        else:
            yield Candidate(slot, point.name, copy.name, copy.version, point.value)
