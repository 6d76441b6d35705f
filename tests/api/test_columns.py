"""Prompts and answers are found under all their usual names."""

from __future__ import annotations

import pytest

from molt_core.api.columns import ANSWER, PROMPT, answer, messages, value_at

USER = [{"role": "user", "content": "2+2?"}]


@pytest.mark.parametrize("name", PROMPT)
@pytest.mark.parametrize("value", ["2+2?", USER])
def test_a_prompt_is_a_string_or_a_chat_list_under_any_of_its_names(name: str, value: object) -> None:
    assert messages({name: value}) == USER


def test_a_row_as_verl_writes_it() -> None:
    row = {"prompt": USER, "reward_model": {"ground_truth": "4", "style": "rule"}, "data_source": "sums"}
    assert messages(row) == USER
    assert answer(row) == "4"


def test_the_first_name_with_a_value_wins_and_null_is_no_value() -> None:
    assert answer({"answer": None, "label": 0, "ground_truth": 5}) == 0
    assert [answer({name: 7}) for name in ANSWER[:3]] == [7, 7, 7]
    assert value_at({"reward_model": "text"}, "reward_model.ground_truth") is None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "x"}, "the row has no prompt or messages or input; its columns are text"),
        ({"prompt": 3}, "prompt is an int, wanted"),
        ({"messages": []}, "messages is an empty list"),
        ({"messages": ["hello"]}, r"messages\[0\] is a str"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\] has role a str and content null"),
        ({"messages": [*USER, {"role": "assistant", "content": "4"}]}, "ends with an assistant message"),
    ],
)
def test_what_is_no_prompt_is_refused_with_its_column(row: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        messages(row)
