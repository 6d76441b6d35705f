"""Knobs that were written for a plugin which a later file or a flag replaced.

They are left out, with a note, rather than handed to another plugin that may read the same
name differently. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from molt_core.api.findings import Finding
from molt_core.config.choices import DEFAULTS, Choices
from molt_core.config.settings import HOOK_FLAG, SLOT_OF_FLAG, Setting
from molt_core.plugins.match import matching
from molt_core.plugins.names import normalized
from molt_core.plugins.scan import Scan


def drop_replaced(
    settings: Sequence[Setting], choices: Choices, scan: Scan
) -> tuple[tuple[Setting, ...], tuple[Finding, ...]]:
    """Split off the knobs whose plugin was replaced after they were written; a note for each."""
    kept: list[Setting] = []
    notes: list[Finding] = []
    for setting in settings:
        by = _replacement(setting, settings, choices, scan)
        if by is None:
            kept.append(setting)
        else:
            fix = "remove it, or write it again in the same place as the new choice"
            notes.append(Finding("note", "M129", f"{setting}: not used, {by} replaces its plugin", (), fix))
    return tuple(kept), tuple(notes)


def _replacement(
    setting: Setting, settings: Iterable[Setting], choices: Choices, scan: Scan
) -> Setting | None:
    flag, _, name = setting.owner.partition(".")
    slot = SLOT_OF_FLAG.get(flag)
    named = [other for other in settings if other.key == flag]
    later = [other for other in named if other.layer > setting.layer]
    if slot is None or flag in choices.failed or not later:
        return None
    in_force = [other for other in named if other.layer <= setting.layer]
    written_for = in_force[-1].values if in_force else (DEFAULTS.get(slot),)
    final = choices.of(setting.owner)
    if flag == HOOK_FLAG:
        was_on = any(normalized(str(value).rpartition("/")[2]) == name for value in written_for)
        return later[-1] if was_on and final is None else None
    was = written_for[-1]
    if final is None or not isinstance(was, str) or final.candidate in matching(scan, slot, was):
        return None
    return later[-1]
