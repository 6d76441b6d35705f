"""Types and ranges: strict for TOML, by type for flags, every wrong field reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from molt_core.api.options import option, options
from molt_core.config.settings import Setting
from molt_core.config.structure import accepted, fields_of, from_table, structure


@options
class Knobs:
    count: int = option(1, help="n", ge=1, le=9)
    rate: float = option(0.5, help="x")
    on: bool = option(False, help="b")
    name: str = option("a", help="s")
    folder: Path = option(Path("p"), help="f")
    kind: Literal["x", "y", 3] = option("x", help="k")
    limit: int | None = option(None, help="l", gt=0)
    names: tuple[str, ...] = option((), help="many")


def toml(key: str, value: Any) -> Setting:
    return Setting(key, (value,), "run.toml:4", from_flag=False, layer=0)


def flag(key: str, *texts: Any) -> Setting:
    return Setting(key, texts, f"--{key}", from_flag=True, layer=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("count", "3"), ("count", True), ("count", 3.0), ("count", 0), ("count", 10), ("rate", "0.1"),
        ("rate", True), ("rate", float("nan")), ("rate", float("inf")), ("on", 1), ("on", "true"), ("name", 3),
        ("folder", 3), ("kind", "z"), ("kind", True), ("limit", 0), ("limit", "7"), ("names", 1),
        ("names", [1]), ("name", ["a"]), ("count", {"a": 1}),
    ],
)  # fmt: skip
def test_toml_of_wrong_type_or_range_is_refused(key: str, value: Any) -> None:
    made = structure(Knobs, [toml(key, value)])
    (finding,) = made.findings
    assert finding.code == "M122"
    assert finding.message.startswith(f"run.toml:4: {key} = {value!r}: ")
    assert made.broken == {key}
    assert made.options == Knobs(), "the wrong value is left at its default"


def test_one_value_of_a_list_may_stand_without_brackets_in_toml() -> None:
    assert structure(Knobs, [toml("names", "abc")]).options.names == ("abc",)


@pytest.mark.parametrize(
    ("key", "texts", "value"),
    [
        ("count", ("3",), 3), ("rate", ("1",), 1.0), ("rate", ("1e-5",), 1e-5), ("on", (True,), True),
        ("on", (True, False), False), ("on", ("true",), True), ("name", ("3",), "3"), ("folder", ("a/b",), Path("a/b")),
        ("kind", ("3",), 3), ("limit", ("none",), None), ("limit", ("4",), 4), ("names", ("a", "b"), ("a", "b")),
        ("count", ("3", "4"), 4), ("name", ("",), ""),
    ],
)  # fmt: skip
def test_text_of_flags_is_read_by_type(key: str, texts: tuple[Any, ...], value: Any) -> None:
    assert getattr(structure(Knobs, [flag(key, *texts)]).options, key) == value


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("count", "x", "--count x: must be a whole number"),
        ("count", "1.5", "must be a whole number"),
        ("count", True, "--count: needs a value: int"),
        ("count", False, "--no- form"),
        ("rate", "nan", "finite"),
        ("on", "run.toml", "files go before the flags"),
        ("kind", "z", "must be one of x, y, 3"),
        ("limit", "-1", "must be > 0"),
        ("names", True, "needs a value"),
    ],
)
def test_wrong_text_of_flags_is_refused(key: str, text: Any, words: str) -> None:
    (finding,) = structure(Knobs, [flag(key, text)]).findings
    assert words in finding.message


def test_all_wrong_fields_are_reported_at_once() -> None:
    made = structure(Knobs, [toml("count", 0), toml("rate", "x"), toml("kind", 1)])
    assert [finding.code for finding in made.findings] == ["M122"] * 3


def test_a_required_option_that_is_missing_is_named_with_its_owner() -> None:
    @options
    class Needy:
        path: Path = option(help="where it lies")

    made = structure(Needy, [], owner="engine", who="engine 'x'")
    assert made.options is None
    assert made.findings[0].code == "M123"
    assert made.findings[0].message == "--engine.path of engine 'x' is required: where it lies"


def test_fields_that_do_not_agree_are_a_finding() -> None:
    @options
    class Pair:
        low: int = option(1, help="l")
        high: int = option(2, help="h")

        def __attrs_post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low must be <= high")

    made = structure(Pair, [toml("low", 5)], who="loss 'pair'")
    assert made.options is None
    assert "low must be <= high" in made.findings[0].message


def test_range_and_type_in_words() -> None:
    words = {attribute.name: accepted(attribute) for attribute in fields_of(Knobs)}
    assert words["count"] == "int >= 1 and <= 9"
    assert words["kind"] == "x|y|3"
    assert words["names"] == "text ..."


def test_from_table_refuses_unknown_keys_and_wrong_values() -> None:
    with pytest.raises(ValueError, match="no option 'nope'"):
        from_table(Knobs, {"nope": 1})
    with pytest.raises(ValueError, match=r"Knobs\.count must be a whole number, got '1'"):
        from_table(Knobs, {"count": "1"})
