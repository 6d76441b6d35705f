"""Text of `molt run --help`: the core's flags and those of the chosen plugins only.

    molt run --help                       the defaults' flags
    molt run --engine transformers --help   that engine's flags

Flags of plugins that were not chosen are not shown, so that the text grows with the run and
not with what is installed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from molt_core.api.run_options import RunOptions
from molt_core.api.spec import SLOTS, ModelSpec
from molt_core.config.choices import Choices
from molt_core.config.convert import required_type
from molt_core.config.from_file import SLOTS_FROM_FILES
from molt_core.config.parse import draft
from molt_core.config.purpose import TRAIN, Purpose
from molt_core.config.settings import HOOK_FLAG, flag_of
from molt_core.config.structure import Attribute, accepted, fields_of
from molt_core.plugins.scan import Scan

_WIDTH: Final = 100
_COLUMN: Final = 34


def help_text(argv: Sequence[str], scan: Scan, command: str = "molt run", purpose: Purpose = TRAIN) -> str:
    """Help under the choices that argv and its files make; what is wrong with them is left out."""
    choices = draft(argv, scan, purpose).choices
    return "\n".join(_lines(command, choices, scan, purpose)) + "\n"


def _lines(command: str, choices: Choices, scan: Scan, purpose: Purpose) -> Iterator[str]:
    yield f"usage: {command} [FILE.toml ...] [--flag VALUE ...]"
    yield ""
    yield "Later files win over earlier ones, flags over files. A flag with ... is given once for each value."
    yield from ("", "run:")
    for attribute in fields_of(RunOptions):
        if attribute.name not in purpose.unused_keys:
            yield from option_lines(attribute, "")
    yield from ("", "plugins, by slot (molt plugins info NAME tells more):")
    for slot, kind in SLOTS.items():
        if slot == ModelSpec.slot or slot in purpose.unused_slots:
            continue
        names = sorted({candidate.name for candidate in scan.of(slot)})
        now = ", ".join(choice.spec.name for choice in choices.chosen.get(slot, ()))
        text = f"{', '.join(names) or 'none is installed'} [{now or 'not set'}]"
        value = "NAME | FILE.py:NAME" if slot in SLOTS_FROM_FILES else "NAME"
        yield from _entry(f"--{kind.flag} {value}", f"repeatable: {text}" if kind.flag == HOOK_FLAG else text)
    for chosen in choices.chosen.values():
        for choice in chosen:
            attributes = fields_of(choice.spec.options)
            if attributes:
                yield from ("", f"{choice.spec.flag} {choice.spec.name}: {choice.spec.summary}")
            for attribute in attributes:
                yield from option_lines(attribute, choice.owner)
    yield from ("", "instead of a run:")
    yield from _entry("--help, -h", "this text, with the flags of the chosen plugins")
    yield from _entry("--print-config", "print the configuration with the origin of each value")
    yield from _entry("--dry-run", "check everything and print the plan")


def option_lines(attribute: Attribute, owner: str) -> Iterator[str]:
    """Flag, type and range, meaning and default of one option; `owner` is the prefix of its key."""
    flag = flag_of(f"{owner}.{attribute.name}" if owner else attribute.name)
    text = attribute.metadata.get("help", "")
    if required_type(attribute.type) is bool:
        yield from _entry(f"{flag} / --no-{flag[2:]}", f"{text} [{_default(attribute)}]")
    else:
        yield from _entry(f"{flag} {accepted(attribute)}", f"{text} [{_default(attribute)}]")


def _default(attribute: Attribute) -> str:
    default: Any = attribute.default
    if default is attrs.NOTHING:
        return "required"
    if default is None or default in ("", ()):
        return "not set"
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)


def _entry(left: str, right: str) -> Iterator[str]:
    first, *rest = textwrap.wrap(right, _WIDTH - _COLUMN, break_on_hyphens=False) or [""]
    if len(left) + 4 > _COLUMN:
        yield f"  {left}"
        yield " " * _COLUMN + first
    else:
        yield f"  {left}".ljust(_COLUMN) + first
    yield from (" " * _COLUMN + line for line in rest)
