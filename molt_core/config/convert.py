"""Values of options by their field's type: what TOML gives, and what text of flags means.

Strict: a TOML string is no number, a bool is no int, 8.0 is no int; only flags' text is
converted. NaN and infinity are refused because the plan is JSON. Types are those that
`molt_core.api.options` allows; ranges are the fields' validators' matter.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from molt_core.config.settings import Setting

NONE: Final = "none"
"""Unsets an optional option: TOML has no null, and neither have flags."""


def convert(setting: Setting, kind: Any) -> Any:
    """The typed value of a setting.

    Raises:
        ValueError: in words that go on after the setting: `must be a number`.
    """
    value = setting.value
    if value == NONE and is_optional(kind):
        return None
    if not setting.from_flag:
        return from_plain(value, kind)
    if required_type(kind) is not bool:
        if False in setting.values:
            raise ValueError("only options that are true or false have a --no- form")
        if True in setting.values:
            raise ValueError(f"needs a value: {type_name(kind)}")
    is_list = get_origin(required_type(kind)) is tuple
    return _read(setting.values if is_list else value, kind, text=True)


def from_plain(value: Any, kind: Any) -> Any:
    """Typed value of a TOML or JSON value. Raises ValueError as `convert` does."""
    return _read(value, kind, text=False)


def is_optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)


def required_type(kind: Any) -> Any:
    """`int | None` -> `int`; other types unchanged."""
    if is_optional(kind):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind


def type_name(kind: Any) -> str:
    """Word for messages and help: `int`, `float`, `text`, `path`, `a|b`."""
    kind = required_type(kind)
    if get_origin(kind) is Literal:
        return "|".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return f"{type_name(get_args(kind)[0])} ..."
    words: dict[Any, str] = {str: "text", Path: "path"}
    return words.get(kind) or str(getattr(kind, "__name__", kind))


def _read(value: Any, kind: Any, *, text: bool) -> Any:
    if is_optional(kind):
        return None if value is None else _read(value, required_type(kind), text=text)
    if get_origin(kind) is Literal:
        return _choice(value, kind, text=text)
    if get_origin(kind) is tuple:
        # one value may stand without brackets, as it may on the command line
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_item(item, get_args(kind)[0], text=text) for item in items)
    return _SCALARS[kind](value, text=text)


def _item(item: Any, kind: Any, *, text: bool) -> Any:
    try:
        return _read(item, kind, text=text)
    except ValueError as wrong:
        raise ValueError(f"{item!r} {wrong}") from wrong


def _int(value: Any, *, text: bool) -> int:
    if text and isinstance(value, str):
        with suppress(ValueError):  # reported below, as any other value that is no int
            return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")
    return value


def _float(value: Any, *, text: bool) -> float:
    if text and isinstance(value, str):
        with suppress(ValueError):  # reported below, as any other value that is no number
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return float(value)


def _bool(value: Any, *, text: bool) -> bool:
    if text and value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        hint = "; --flag and --no-flag need no value, and files go before the flags" if text else ""
        raise ValueError(f"must be true or false{hint}")
    return value


def _str(value: Any, *, text: bool) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _path(value: Any, *, text: bool) -> Path:
    return Path(_str(value, text=text))


def _choice(value: Any, kind: Any, *, text: bool) -> Any:
    for choice in get_args(kind):
        # the type too, because 1 == True
        if (value == choice and type(value) is type(choice)) or (text and value == str(choice)):
            return choice
    raise ValueError(f"must be one of {', '.join(map(str, get_args(kind)))}")


_SCALARS: Final[dict[Any, Callable[..., Any]]] = {
    int: _int, float: _float, bool: _bool, str: _str, Path: _path,
}  # fmt: skip
