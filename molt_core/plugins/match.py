"""What a typed name may mean among the installed plugins. Pure: a scan goes in, nothing is imported.

A bare name is the first party's; a stranger's stands bare only while nobody else offers it;
`dist/name` is always exact. Aliases work for the first party only, because a stranger's are
inside its spec, and listing must not import it.
"""

from __future__ import annotations

from molt_core.plugins.names import FIRST_PARTY_DISTRIBUTIONS, normalized, normalized_dist, owner_of
from molt_core.plugins.scan import Candidate, Scan


def matching(scan: Scan, slot: str, wanted: str) -> tuple[Candidate, ...]:
    """Every candidate that `wanted` may mean: none, one, or several strangers that share a name."""
    dist, _, name = wanted.rpartition("/")
    owner = owner_of(slot, name)
    if owner and normalized_dist(dist or owner.dist) == owner.dist:
        dist, name = owner.dist, owner.name
    named = tuple(one for one in scan.of(slot) if normalized(one.name) == normalized(name))
    if dist:
        return tuple(one for one in named if one.dist == normalized_dist(dist))
    return tuple(one for one in named if one.dist in FIRST_PARTY_DISTRIBUTIONS) or named


def is_shadowed(scan: Scan, candidate: Candidate) -> bool:
    """Whether the bare name of `candidate` means something else, or several things."""
    return matching(scan, candidate.slot, candidate.name) != (candidate,)
