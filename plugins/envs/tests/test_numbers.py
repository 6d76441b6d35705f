"""Numbers are read the way people write them, and never in more than linear time."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_envs.numbers import NUMBER, last_number


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("7", "7"),
        ("The answer is 7.", "7"),
        ("3 + 4 = 7", "7"),
        ("It costs $1,234.50.", "1234.50"),
        ("1,234,567", "1234567"),
        ("1,2,3", "3"),
        ("12,34", "34"),
        ("-3", "-3"),
        ("= \u22123.", "-3"),
        ("10-4", "4"),
        ("(1)-4", "4"),
        ("is -4", "-4"),
        (".5", "0.5"),
        ("007", "7"),
        ("50%", "50"),
        ("#### 72", "72"),
        ("**12**", "12"),
        ("about \u0663 (not ASCII)", None),
        ("none", None),
        ("", None),
    ],
)
def test_last_number(text: str, wanted: str | None) -> None:
    assert last_number(text) == (None if wanted is None else Decimal(wanted))


@given(st.integers(), st.text(alphabet=" \n.abc", max_size=10))
def test_any_integer_is_found_before_words_with_and_without_commas(value: int, words: str) -> None:
    for written in (f"{value}", f"{value:,}"):
        assert last_number(f"x = {written} {words}") == value


@pytest.mark.parametrize("unit", ["1", "1,111", ",", ".", "-", "1.", ",111", "1-", "-,1."])
def test_hostile_texts_take_linear_time(unit: str) -> None:
    # counted in matches instead of seconds: each scan moves on, so their number is bounded by the length
    text = unit * 20_000
    assert sum(1 for _ in NUMBER.finditer(text)) <= len(text)
    last_number(text)
