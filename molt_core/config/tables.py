"""The inverse: options objects to plain tables, a configuration to the TOML that makes it again.

Plain means what JSON and TOML can hold: a `Path` is its text, a tuple a list. An option that is
None is left out where None is its default, else it is written as "none", which the reader knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from molt_core import __version__
from molt_core.api import python_file
from molt_core.api.plan_view import ChosenPart
from molt_core.api.spec import SLOTS, ModelSpec
from molt_core.config.convert import NONE
from molt_core.config.parse import Configuration
from molt_core.config.settings import DEFAULT, HOOK_FLAG
from molt_core.config.structure import fields_of
from molt_core.plugins.names import FIRST_PARTY_DISTRIBUTIONS, normalized

_BARE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def to_table(options: Any) -> dict[str, Any]:
    """Every field of an options object by name, as JSON values; None stays None."""
    return {
        attribute.name: _plain(getattr(options, attribute.name)) for attribute in fields_of(type(options))
    }


def to_toml(configuration: Configuration) -> str:
    """The whole configuration, defaults included, each value with its origin as a comment."""
    return "\n".join(_lines(configuration)) + "\n"


def chosen_name(part: ChosenPart) -> str:
    """The name that means this plugin whatever else is installed; `FILE.py:NAME` of one in a file."""
    if python_file.split(part.spec.factory):
        return part.spec.factory
    return part.spec.name if part.dist in FIRST_PARTY_DISTRIBUTIONS else f"{part.dist}/{part.spec.name}"


def _lines(configuration: Configuration) -> Iterator[str]:
    origins = configuration.origins
    yield f"# molt-core {__version__}"
    # TOML can't hold `model = "..."` beside a table of its options
    is_table = any(_has_knobs(part) for part in configuration.parts.get(ModelSpec.slot, ()))
    yield from _fields(configuration.run, "", configuration, skip=ModelSpec.flag if is_table else "")
    hooks = configuration.parts.get("hooks", ())
    names = [chosen_name(hook) for hook in hooks]
    yield _line("hooks", names, origins.get(HOOK_FLAG, DEFAULT))
    for slot, kind in SLOTS.items():
        for part in configuration.parts.get(slot, ()):
            if kind.flag == HOOK_FLAG:
                name = normalized(part.spec.name)
                knobs = list(_fields(part.options, f"{HOOK_FLAG}.{name}", configuration))
                yield from ("", f"[{HOOK_FLAG}.{_key(name)}]", *knobs) if knobs else ()
            elif slot != ModelSpec.slot or _has_knobs(part):
                name = configuration.run.model if slot == ModelSpec.slot else chosen_name(part)
                yield from ("", f"[{kind.flag}]")
                yield _line("use", name, origins.get(kind.flag, DEFAULT))
                yield from _fields(part.options, kind.flag, configuration)


def _has_knobs(part: ChosenPart) -> bool:
    return bool(fields_of(type(part.options)))


def _fields(options: Any, owner: str, configuration: Configuration, *, skip: str = "") -> Iterator[str]:
    for attribute in fields_of(type(options)):
        if attribute.name == skip:
            continue
        value = _plain(getattr(options, attribute.name))
        key = f"{owner}.{attribute.name}" if owner else attribute.name
        if value is None and attribute.default is None:
            yield f"# {attribute.name}: not set"
        else:
            yield _line(
                attribute.name, NONE if value is None else value, configuration.origins.get(key, DEFAULT)
            )


def _line(key: str, value: Any, origin: str) -> str:
    return f"{_key(key)} = {_value(value)}  # {origin}"


def _key(name: str) -> str:
    return name if name and set(name) <= _BARE else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return repr(value)


def _text(value: str) -> str:
    # JSON's string is a TOML basic string, but for the one control character that JSON leaves as it is
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def options_class_path(cls: type[Any]) -> str:
    """`module:Class` of an options class, for the plan."""
    return f"{cls.__module__}:{cls.__qualname__}"
