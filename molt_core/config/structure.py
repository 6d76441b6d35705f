"""Settings of one owner to its options object. Every wrong field is reported, not only the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs
from attrs import field, frozen

from molt_core.api.findings import Finding, error
from molt_core.config.convert import convert, from_plain, type_name
from molt_core.config.settings import Setting, flag_of

Attribute: TypeAlias = "attrs.Attribute[Any]"


def fields_of(cls: type[Any]) -> tuple[Attribute, ...]:
    """Fields of an options class, with their types resolved."""
    return tuple(attrs.fields(cls))


@frozen
class Structured:
    """Result for one owner."""

    options: Any
    """Object of the options class; None when a required option is wrong or missing, or fields don't agree."""
    findings: tuple[Finding, ...] = ()
    broken: frozenset[str] = field(default=frozenset())
    """Fields that hold their default because what was given is wrong."""


def structure(cls: type[Any], settings: Iterable[Setting], *, owner: str = "", who: str = "") -> Structured:
    """Build `cls` from settings whose knobs are all fields of it.

    Args:
        cls: options class.
        owner: prefix of its keys, `estimator`; empty for the core.
        who: the plugin in words, for messages.
    """
    given = {setting.knob: setting for setting in settings}
    values: dict[str, Any] = {}
    findings: list[Finding] = []
    broken: set[str] = set()
    lacking = False
    for attribute in fields_of(cls):
        setting = given.get(attribute.name)
        if setting is not None:
            try:
                value = convert(setting, attribute.type)
                if attribute.validator is not None:
                    attribute.validator(None, attribute, value)
                values[attribute.name] = value
            except ValueError as wrong:
                findings.append(error("M122", f"{setting}: {wrong}", fix=f"wanted: {accepted(attribute)}"))
        elif attribute.default is attrs.NOTHING:
            findings.append(_required(attribute, owner, who))
        else:
            continue
        if attribute.name not in values:
            broken.add(attribute.name)
            lacking = lacking or attribute.default is attrs.NOTHING
    try:
        options = None if lacking else cls(**values)
    except ValueError as wrong:  # a check of several fields together
        options = None
        findings.append(error("M122", f"options of {who or 'the run'}: {wrong}"))
    return Structured(options, tuple(findings), frozenset(broken))


def from_table(cls: type[Any], table: Mapping[str, Any]) -> Any:
    """Options object from a plain table, as `molt_core.config.tables.to_table` makes it.

    Raises:
        ValueError: a key is unknown, or a value has the wrong type or range.
    """
    attributes = {attribute.name: attribute for attribute in fields_of(cls)}
    if unknown := sorted(set(table) - set(attributes)):
        raise ValueError(f"{cls.__name__} has no option {unknown[0]!r}")
    values = {}
    for key, value in table.items():
        try:
            values[key] = from_plain(value, attributes[key].type)
        except ValueError as wrong:
            raise ValueError(f"{cls.__name__}.{key} {wrong}, got {value!r}") from wrong
    return cls(**values)


def accepted(attribute: Attribute) -> str:
    """Type and range of a field in words: `int >= 1`."""
    bounds = attribute.metadata.get("bounds", {}).items()
    ranges = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)
    return f"{type_name(attribute.type)} {ranges}".rstrip()


def _required(attribute: Attribute, owner: str, who: str) -> Finding:
    key = f"{owner}.{attribute.name}" if owner else attribute.name
    of = f" of {who}" if who else ""
    message = f"{flag_of(key)}{of} is required: {attribute.metadata.get('help', '')}"
    return error("M123", message, fix=f"{flag_of(key)} {type_name(attribute.type).upper()}")
