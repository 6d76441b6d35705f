"""Keys that nobody knows, with the key that was probably meant.

A key that belongs to another plugin of the slot is told as such. For that, and only when
there is such an error to explain, first-party specs that were not chosen are imported;
a stranger's never are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from molt_core.api.findings import Finding, error
from molt_core.api.spec import GatewaySpec, HookSpec, ModelSpec
from molt_core.config.argv import CORE_KEYS
from molt_core.config.choices import Choices
from molt_core.config.settings import HOOK_FLAG, SLOT_OF_FLAG, SWITCHES, Setting, flag_of
from molt_core.config.structure import fields_of
from molt_core.errors import ConfigError
from molt_core.plugins.load import load_spec
from molt_core.plugins.names import FIRST_PARTY_DISTRIBUTIONS, nearest
from molt_core.plugins.scan import Scan

_NAMELESS: Final = (ModelSpec.slot, HookSpec.slot)
"""Slots that may be empty although something is given for them."""


def unknown(settings: Iterable[Setting], choices: Choices, scan: Scan) -> Iterator[Finding]:
    """A finding for each setting that is no option of the core or of a chosen plugin."""
    known = known_keys(choices)
    for setting in settings:
        if (empty := _slot_is_empty(setting, choices)) is not None:
            yield empty
        elif setting.key in known or setting.owner.partition(".")[0] in choices.failed:
            continue
        else:
            yield _hook_is_off(setting) or _elsewhere(setting, choices, scan) or _nobody(setting, known)


def known_keys(choices: Choices) -> list[str]:
    """Every key that means something under these choices."""
    knobs = [
        f"{choice.owner}.{attribute.name}"
        for chosen in choices.chosen.values()
        for choice in chosen
        for attribute in fields_of(choice.spec.options)
    ]
    return [*CORE_KEYS, *SLOT_OF_FLAG, *knobs]


def _slot_is_empty(setting: Setting, choices: Choices) -> Finding | None:
    """An option, or the choice of a gateway, in a run that has no use for it."""
    flag = setting.key.partition(".")[0]
    slot = SLOT_OF_FLAG.get(flag)
    if slot is None or slot in _NAMELESS or slot in choices.chosen or flag in choices.failed:
        return None
    if slot == GatewaySpec.slot:
        message = "nothing in this run talks to a gateway"
        return error("M132", f"{setting}: {message}", fix="--agent NAME, or an environment of several turns")
    return error("M132", f"{setting}: no {flag} is chosen", fix=f"--{flag} NAME") if setting.owner else None


def _hook_is_off(setting: Setting) -> Finding | None:
    flag, _, name = setting.owner.partition(".")
    if flag != HOOK_FLAG or not name:
        return None
    fix = f'--hook {name}, or hooks = ["{name}"]'
    return error("M128", f"{setting}: hook {name!r} is not turned on", fix=fix)


def _elsewhere(setting: Setting, choices: Choices, scan: Scan) -> Finding | None:
    slot = SLOT_OF_FLAG.get(setting.owner)
    chosen = choices.of(setting.owner)
    if slot is None or chosen is None:
        return None
    for candidate in scan.of(slot):
        if candidate.dist not in FIRST_PARTY_DISTRIBUTIONS or candidate == chosen.candidate:
            continue
        try:
            options = load_spec(candidate).options
        except ConfigError:
            continue  # it was not chosen, so what is wrong with it is not this run's matter
        if any(attribute.name == setting.knob for attribute in fields_of(options)):
            message = f"{setting}: is an option of {candidate.name!r}, but {chosen.spec.name!r} is chosen"
            return error("M121", message, fix=f"remove it, or --{setting.owner} {candidate.name}")
    return None


def _nobody(setting: Setting, known: list[str]) -> Finding:
    spell = flag_of if setting.from_flag else str
    siblings = [key.rpartition(".")[2] for key in known if setting.owner and _owner(key) == setting.owner]
    sibling = nearest(setting.knob, siblings)
    meant = f"{setting.owner}.{sibling}" if sibling else nearest(setting.key, [*known, *SWITCHES])
    if meant:
        fix = f"did you mean {spell(meant)}?"
    elif siblings:
        fix = f"options of {setting.owner}: {', '.join(siblings)}"
    else:
        fix = "molt run --help lists all"
    return error("M121", f"{setting}: there is no such {'flag' if setting.from_flag else 'key'}", fix=fix)


def _owner(key: str) -> str:
    return key.rpartition(".")[0]
