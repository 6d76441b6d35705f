"""Options: one attrs class gives flags, TOML keys, validation, documentation and the saved config.

    @options
    class ClipOptions:
        clip_low: float = option(0.2, help="lower clip distance of the ratio", ge=0, lt=1)

Field types may be int, float, bool, str, pathlib.Path, Literal, an Optional of these, and
`tuple[T, ...]`. Nothing here reads flags or files: `molt_core.config` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar, dataclass_transform

import attrs

REQUIRED: Final = attrs.NOTHING
T = TypeVar("T")


def option(
    default: Any = REQUIRED,
    *,
    help: str,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    check: Callable[[Any], str | None] | None = None,
    convert: Callable[[Any], Any] | None = None,
) -> Any:
    """One field of an options class.

    Args:
        default: value when nothing is given; left out means that the user must give one.
        help: one line for `--help` and the generated reference; required.
        ge, gt, le, lt: bounds of a number.
        convert: applied to the value before it is checked and saved; must leave its own results alone.
        check: returns what is wanted ("must be …") when the value is wrong, else None.
    """
    bounds = {">=": ge, ">": gt, "<=": le, "<": lt}

    def validate(_instance: object, _attribute: object, value: Any) -> None:
        if value is None:
            return
        wrong = _outside(value, bounds) or (check(value) if check else None)
        if wrong:
            raise ValueError(wrong)

    metadata = {"help": help, "bounds": bounds}
    return attrs.field(default=default, converter=convert, validator=validate, metadata=metadata)


def _outside(value: Any, bounds: dict[str, float | None]) -> str | None:
    compare: dict[str, Callable[[Any, Any], bool]] = {
        ">=": lambda a, b: a >= b,
        ">": lambda a, b: a > b,
        "<=": lambda a, b: a <= b,
        "<": lambda a, b: a < b,
    }
    for sign, bound in bounds.items():
        # written as "not inside" so that NaN, which compares false with everything, is refused
        if bound is not None and not compare[sign](value, bound):
            return f"must be {sign} {bound:g}"
    return None


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, attrs.field))
def options(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, keyword-only attrs class whose fields become flags and TOML keys."""
    made = attrs.frozen(kw_only=True)(cls)
    attrs.resolve_types(made)  # type: ignore[type-var]
    return made


@options
class NoOptions:
    """For plugins without knobs."""


def json_object(text: str) -> str | None:
    """A check for options that hold a JSON object, for what has no options class of ours."""
    try:
        fits = isinstance(json.loads(text), dict)
    except ValueError:
        fits = False
    return None if fits else 'must be a JSON object, as {"name": 1}'
