"""`molt plugins info NAME`: what one plugin does, its options and facts. Imports that plugin's spec.

NAME is a name as on the command line of a run, or `slot/name` where several slots have it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import attrs

from molt_core.api.findings import error
from molt_core.api.spec import SLOTS, Spec
from molt_core.config.help import option_lines
from molt_core.config.settings import owner_of_knobs
from molt_core.config.structure import fields_of
from molt_core.errors import ConfigError
from molt_core.plugins.load import load_spec
from molt_core.plugins.match import is_shadowed, matching
from molt_core.plugins.names import FIRST_PARTY, nearest
from molt_core.plugins.resolve import resolve
from molt_core.plugins.scan import Candidate, Scan, scan


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="molt plugins info", description="Describe one plugin and its options.", allow_abbrev=False
    )
    parser.add_argument("name", metavar="NAME", help="plugin as in `molt plugins list`, or SLOT/NAME")
    installed = scan()
    candidate = find(installed, parser.parse_args(argv).name)
    print("\n".join(describe(candidate, load_spec(candidate), shadowed=is_shadowed(installed, candidate))))
    return 0


def find(installed: Scan, wanted: str) -> Candidate:
    """The candidate that `wanted` means when no slot is given, or when it is `slot/name` or `flag/name`.

    Raises:
        ConfigError: no slot or more than one slot has the name, or the slot's own error.
    """
    first, _, rest = wanted.partition("/")
    for slot, kind in SLOTS.items():
        if rest and first in (slot, kind.flag):
            return resolve(installed, slot, rest)
    slots = [slot for slot in SLOTS if matching(installed, slot, wanted)]
    if len(slots) == 1:
        return resolve(installed, slots[0], wanted)
    if slots:
        fix = "write " + " or ".join(f"molt plugins info {slot}/{wanted}" for slot in slots)
        raise ConfigError([error("M103", f"{wanted!r} is a name in {' and '.join(slots)}", fix=fix)])
    known = {one.name: one.slot for one in installed.candidates}
    known |= {spelling: own.slot for own in FIRST_PARTY for spelling in (own.name, *own.aliases)}
    meant = nearest(wanted, known)
    if meant:
        return resolve(installed, known[meant], wanted)
    raise ConfigError(
        [error("M101", f"no plugin is named {wanted!r}", fix="molt plugins list shows them all")]
    )


def describe(candidate: Candidate, spec: Spec, *, shadowed: bool) -> Iterator[str]:
    """The lines of the answer."""
    yield f"{spec.name}: {spec.summary}"
    yield ""
    yield f"choose it   --{spec.flag} {candidate.qualified if shadowed else spec.name}"
    if spec.aliases:
        yield f"aliases     {', '.join(spec.aliases)}"
    yield f"package     {candidate.owner}"
    yield f"slot        {spec.slot}, API {spec.api}"
    yield f"spec        {candidate.value}"
    yield f"code        {spec.factory}"
    yield from _facts(spec)
    fields = fields_of(spec.options)
    yield ""
    yield "options" if fields else "no options"
    for option in fields:
        yield from option_lines(option, owner_of_knobs(spec))


def _facts(spec: Spec) -> Iterator[str]:
    """What the spec states under its default options."""
    if any(field.default is attrs.NOTHING for field in fields_of(spec.options)):
        return
    try:
        facts = spec.facts(spec.options())
    # isolation point: facts are the plugin's code, and the rest of the answer may explain the fault
    except Exception as failure:  # noqa: BLE001
        yield f"facts       raised {type(failure).__name__}: {failure}"
        return
    for word in ("provides", "needs", "refuses", "owns"):
        stated = sorted(getattr(facts, word))
        if stated:
            yield f"{word:<12}{', '.join(stated)}"
