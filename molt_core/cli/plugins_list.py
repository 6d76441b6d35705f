"""`molt plugins list`: what is installed, by slot.

Reads package metadata only, so that a broken plugin can be listed, and found. `--details`
imports every spec for its summary and says which are broken.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence

from attrs import asdict, frozen

from molt_core.api.spec import SLOTS
from molt_core.errors import ConfigError
from molt_core.plan.show import table
from molt_core.plugins.match import is_shadowed, matching
from molt_core.plugins.names import FIRST_PARTY, owner_of
from molt_core.plugins.scan import Candidate, Scan, scan


@frozen(kw_only=True)
class Row:
    """One line of the list, and one object of `--json`."""

    slot: str
    name: str
    """What to write to choose it."""
    dist: str
    version: str
    value: str
    aliases: tuple[str, ...]
    state: str
    """`installed`, `shadowed` or, with `--details`, `broken`."""
    summary: str = ""
    """With `--details`: the plugin's own words, or why it is broken."""


def main(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    installed = scan()
    slots = [arguments.slot] if arguments.slot else list(SLOTS)
    rows = [
        _row(installed, candidate, details=arguments.details)
        for slot in slots
        for candidate in installed.of(slot)
    ]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    print(_table(rows) if rows else "no plugin is installed")
    for line in _not_installed(installed, slots):
        print(line)
    for finding in installed.findings:
        print(f"warning {finding.code}  {finding.message}; {finding.fix}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="molt plugins list", description="List installed plugins by slot.", allow_abbrev=False
    )
    parser.add_argument("--slot", choices=SLOTS, metavar="SLOT", help=f"only this one of: {', '.join(SLOTS)}")
    parser.add_argument("--json", action="store_true", help="print JSON, with entry points")
    parser.add_argument(
        "--details", action="store_true", help="import each plugin for its summary; shows broken ones"
    )
    return parser


def _row(installed: Scan, candidate: Candidate, *, details: bool) -> Row:
    shadowed = is_shadowed(installed, candidate)
    owner = None if shadowed else owner_of(candidate.slot, candidate.name)
    state, summary = ("shadowed" if shadowed else "installed"), ""
    if details:
        from molt_core.plugins.load import load_spec

        try:
            summary = load_spec(candidate).summary
        except ConfigError as error:
            state, summary = "broken", error.findings[0].message
    return Row(
        slot=candidate.slot,
        name=candidate.qualified if shadowed else owner.name if owner else candidate.name,
        dist=candidate.dist,
        version=candidate.version,
        value=candidate.value,
        aliases=owner.aliases if owner else (),
        state=state,
        summary=summary,
    )


def _table(rows: list[Row]) -> str:
    cells = [("slot", "name", "package", "")]
    for row in rows:
        notes = [f"alias {', '.join(row.aliases)}"] if row.aliases else []
        if row.state == "shadowed":
            notes.append(f"the bare name {row.name.rpartition('/')[2]} means another package's")
        if row.summary:
            notes.append(f"{row.state}: {row.summary}" if row.state == "broken" else row.summary)
        cells.append((row.slot, row.name, f"{row.dist} {row.version}", "; ".join(notes)))
    return table(cells)


def _not_installed(installed: Scan, slots: Iterable[str]) -> Iterable[str]:
    missing: dict[str, list[str]] = {}
    for owner in FIRST_PARTY:
        if owner.slot in slots and not matching(installed, owner.slot, owner.name):
            missing.setdefault(owner.dist, []).append(f"{SLOTS[owner.slot].flag} {owner.name}")
    if missing:
        yield "\nnot installed:"
    for dist, names in missing.items():
        yield f"  {', '.join(names)}: pip install {dist}"
