"""The frozen plan: all that processes need to know of a run, as JSON.

Made once, on the driver. Workers get import paths and options and never look for plugins. The
digest is taken over the canonical JSON, so equal plans have equal digests on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs
from attrs import frozen
from cattrs import Converter
from cattrs.errors import BaseValidationError

from molt_core import __version__
from molt_core.api import python_file
from molt_core.api.findings import error
from molt_core.api.plan_view import ChosenPart, PlanView
from molt_core.api.run_options import RunOptions
from molt_core.api.spec import Spec
from molt_core.config.from_file import DIST as FROM_FILE
from molt_core.config.structure import from_table
from molt_core.config.tables import options_class_path, to_table
from molt_core.errors import ConfigError
from molt_core.plugins.factory import import_factory, import_object
from molt_core.plugins.names import CORE

SCHEMA: Final = 1


@frozen(kw_only=True)
class PlanPart:
    """One chosen plugin."""

    slot: str
    name: str
    dist: str
    version: str
    api: int
    factory: str
    """`module:attribute`, or `FILE.py:NAME`."""
    options_class: str
    """`module:Class`."""
    options: dict[str, Any]
    declares: dict[str, Any]
    """What the spec says beyond the fields of every spec, e.g. `needs_groups`; JSON values."""

    def typed_options(self) -> Any:
        """Options object; imports the plugin's light module. Raises ValueError if they don't fit."""
        return from_table(import_object(self.options_class), self.options)

    def maker(self) -> Callable[..., Any]:
        """Called with `args`, makes the part of its options and these; imports the plugin's heavy module."""
        return partial(import_factory(self.factory), self.typed_options())

    def build(self, *args: Any) -> Any:
        """One such part."""
        return self.maker()(*args)


@frozen(kw_only=True)
class Plan:
    """What will run."""

    schema: int = SCHEMA
    molt_version: str
    run: dict[str, Any]
    """Run options as a plain table."""
    model: dict[str, Any]
    """Model facts as a plain table."""
    parts: dict[str, tuple[PlanPart, ...]]
    """Slot to chosen plugins."""
    facts: tuple[str, ...] = ()
    """Facts that hold in this run."""
    top_logprobs: int = 0
    """Likeliest tokens that engines return beside each sampled one, in training."""

    def first(self, slot: str) -> PlanPart | None:
        """The plugin of a slot that may be empty."""
        return next(iter(self.parts.get(slot, ())), None)

    def one(self, slot: str) -> PlanPart:
        """The plugin of a slot that holds exactly one."""
        (part,) = self.parts[slot]
        return part

    def optional(self, slot: str, *args: Any) -> Any:
        """What the plugin of a slot makes of `args`; None where the slot is empty."""
        chosen = self.parts.get(slot, ())
        return chosen[0].build(*args) if chosen else None

    @property
    def packages(self) -> tuple[str, ...]:
        """Where its parts come from: distributions, the core's too, and Python files of the user."""
        chosen = [part for parts in self.parts.values() for part in parts]
        texts = [part.factory for part in chosen]
        for part in chosen:
            for value in part.options.values():
                texts += [
                    each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)
                ]
        files = {str(found[0]) for found in map(python_file.split, texts) if found and found[0].is_absolute()}
        return tuple(sorted({CORE, *(part.dist for part in chosen)} - {FROM_FILE} | files))

    def run_options(self) -> RunOptions:
        options: RunOptions = from_table(RunOptions, self.run)
        return options

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return attrs.asdict(self)

    def to_json(self) -> str:
        return (
            json.dumps(self.to_dict(), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The inverse of `to_json`.

        Raises:
            ConfigError: the text is no plan, or of another schema.
        """
        try:
            table = json.loads(text)
            schema = table["schema"]
            if schema == SCHEMA:
                return _CONVERTER.structure(table, cls)
        except (ValueError, KeyError, TypeError, BaseValidationError) as problem:
            raise ConfigError([error("M211", f"this is no plan: {problem!r}")]) from problem
        message = f"the plan has schema {schema!r}, this molt-core reads {SCHEMA}"
        raise ConfigError([error("M211", message, fix="use the version of molt-core that wrote it")])


_CONVERTER: Final = Converter(forbid_extra_keys=True)


def freeze(view: PlanView) -> Plan:
    """The plan of a checked run."""
    return Plan(
        molt_version=__version__,
        run=to_table(view.run),
        model=to_table(view.model),
        parts={slot: tuple(map(_frozen, chosen)) for slot, chosen in sorted(view.parts.items()) if chosen},
        facts=tuple(sorted(view.facts)),
        top_logprobs=view.top_logprobs,
    )


def _frozen(part: ChosenPart) -> PlanPart:
    spec = part.spec
    return PlanPart(
        slot=spec.slot,
        name=spec.name,
        dist=part.dist,
        version=part.version,
        api=spec.api,
        factory=spec.factory,
        options_class=options_class_path(spec.options),
        options=to_table(part.options),
        declares={
            field.name: json.loads(json.dumps(getattr(spec, field.name)))
            for field in attrs.fields(type(spec))
            if field.name not in attrs.fields_dict(Spec)
        },
    )
