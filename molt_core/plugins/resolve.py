"""From the name that a user typed to the one candidate it means, or an error that says what to type.

Pure. The rules of meaning are in `molt_core.plugins.match`; here are the errors: several
answer, it ships in a package that is not installed, it belongs to another slot, or nothing
has such a name.
"""

from __future__ import annotations

from molt_core.api.findings import Finding, Source, error
from molt_core.api.spec import SLOTS
from molt_core.errors import ConfigError
from molt_core.plugins.match import matching
from molt_core.plugins.names import FIRST_PARTY, nearest, normalized, normalized_dist, owner_of
from molt_core.plugins.scan import Candidate, Scan


def resolve(scan: Scan, slot: str, wanted: str) -> Candidate:
    """The candidate that `wanted` means in `slot`: a name, a first-party alias, or `dist/name`.

    Raises:
        ConfigError: nothing, or more than one thing, answers to the name (one finding).
    """
    found = matching(scan, slot, wanted)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError([_ambiguous(slot, wanted, found)])
    if "/" in wanted:
        raise ConfigError([_missing_from_package(scan, slot, wanted)])
    missing = _not_installed(scan, slot, wanted) or _of_other_slot(scan, slot, wanted)
    raise ConfigError([missing or _unknown(scan, slot, wanted)])


def _ambiguous(slot: str, wanted: str, found: tuple[Candidate, ...]) -> Finding:
    flag = SLOTS[slot].flag
    owners = " and ".join(one.owner for one in found)
    fix = "write " + " or ".join(f"--{flag} {one.qualified}" for one in found)
    return error("M103", f"{flag} {wanted!r} is offered by {owners}", fix=fix)


def _not_installed(scan: Scan, slot: str, wanted: str) -> Finding | None:
    owner = owner_of(slot, wanted)
    if owner is None:
        return None
    flag = SLOTS[slot].flag
    namesakes = [one for one in scan.of(slot) if normalized(one.name) == normalized(wanted)]
    because = (Source(f"another {flag} of this name is {one.qualified}", one.owner) for one in namesakes)
    message = f"{flag} {wanted!r} is not installed; it ships in {owner.dist}"
    return error("M102", message, *because, fix=f"pip install {owner.dist}")


def _of_other_slot(scan: Scan, slot: str, wanted: str) -> Finding | None:
    for other, kind in SLOTS.items():
        if other != slot and matching(scan, other, wanted):
            message = f"no {SLOTS[slot].flag} is named {wanted!r}; this is the name of one of the {other}"
            return error("M101", message, fix=f"write --{kind.flag} {wanted}")
    return None


def _unknown(scan: Scan, slot: str, wanted: str) -> Finding:
    flag = SLOTS[slot].flag
    installed = sorted({one.name for one in scan.of(slot)})
    shipped = [name for own in FIRST_PARTY if own.slot == slot for name in (own.name, *own.aliases)]
    meant = nearest(wanted, [*installed, *shipped])
    fix = f"molt plugins list --slot {slot} shows them all"
    if meant:
        owner = owner_of(slot, meant)
        missing = owner is not None and not matching(scan, slot, meant)
        fix = f"write --{flag} {meant}" + (f" (pip install {owner.dist})" if owner and missing else "")
    message = f"no {flag} is named {wanted!r}" + (f"; did you mean {meant!r}?" if meant else "")
    return error("M101", message, Source(f"installed: {', '.join(installed) or 'none'}"), fix=fix)


def _missing_from_package(scan: Scan, slot: str, wanted: str) -> Finding:
    flag = SLOTS[slot].flag
    dist, _, name = wanted.rpartition("/")
    offered = sorted(one.name for one in scan.of(slot) if one.dist == normalized_dist(dist))
    if offered:
        meant = nearest(name, offered)
        message = f"{dist} offers no {flag} {name!r}" + (f"; did you mean {meant!r}?" if meant else "")
        spelling = f"{normalized_dist(dist)}/{meant or offered[0]}"
        return error(
            "M101", message, Source(f"it offers {', '.join(offered)}"), fix=f"write --{flag} {spelling}"
        )
    meant = nearest(dist, {one.dist for one in scan.of(slot)})
    message = f"no installed package {dist!r} offers a plugin of slot {slot}"
    fix = f"write --{flag} {meant}/{name}" if meant else f"pip install {dist}"
    return error("M101", message + (f"; did you mean {meant!r}?" if meant else ""), fix=fix)
