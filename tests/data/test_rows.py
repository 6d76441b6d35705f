"""Rows of every format, and every way in which a file can be wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molt_core.api.columns import ANSWER, PROMPT
from molt_core.data.rows import check_rows, is_file_or_hub, read_rows
from molt_core.errors import ConfigError

COLUMNS = (PROMPT, ANSWER)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def write(path: Path, *lines: str | bytes) -> str:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return str(path)


def problems(source: str) -> list[str]:
    """What the check says, and that reading says the same of broken lines."""
    return [finding.message for finding in check_rows(source, COLUMNS)]


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=5))
def test_jsonl_rows_come_back_whatever_their_strings_hold(tmp_path_factory, rows) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    source = write(
        path, *(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") for row in rows)
    )
    assert list(read_rows(source)) == rows


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    row = {"prompt": "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1eseven", "answer": "x"}
    source = write(tmp_path / "a.jsonl", json.dumps(row, ensure_ascii=False), "")
    assert list(read_rows(source)) == [row]
    assert problems(source) == []


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    line = b'{"prompt": "p", "answer": "a"}\r'
    source = write(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + line, b"\r", b"   ", line, b"")
    assert len(read_rows(source)) == 2
    assert problems(source) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt": ', "not JSON: Expecting value at column 12"),
        ('{"prompt": 3', "not JSON: Expecting ',' delimiter at column 13"),
        ("[1, 2]", "a JSON list, wanted an object"),
        ('"text"', "a JSON str, wanted an object"),
        ('[{"prompt": "p"},', "a file of one JSON array must be written as one object a line"),
        ('{"prompt": "p", "answer": NaN}', "not JSON: NaN is no JSON value"),
        (b'{"prompt": "\xff"}', "not UTF-8: invalid start byte at byte 12"),
        ("[" * 100_000, "not JSON"),
        ('{"prompt": 5, "answer": 1}', "prompt is an int, wanted a string or a list of messages"),
    ],
)
def test_a_broken_line_is_named_with_file_line_and_reason(
    tmp_path: Path, line: str | bytes, reason: str
) -> None:
    source = write(tmp_path / "a.jsonl", '{"prompt": "p", "answer": "a"}', "", line)
    (problem,) = problems(source)
    assert problem.startswith(f"{source}:3: ")
    assert reason in problem


def test_all_broken_lines_are_said_at_once_ten_in_words_and_the_rest_in_number(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", *["{"] * 25)
    found = problems(source)
    assert [text.split(":")[1] for text in found[:10]] == [str(number) for number in range(1, 11)]
    assert found[10:] == [f"{source}: 15 more broken lines"]
    with pytest.raises(ConfigError) as refused:
        read_rows(source)
    assert [finding.message for finding in refused.value.findings] == found


def test_missing_columns_are_counted_and_the_nearest_name_is_offered(tmp_path: Path) -> None:
    rows = [
        '{"prompt": "p", "answer": "a"}',
        '{"promt": "p", "awnser": "a"}',
        '{"promt": "p", "awnser": "a"}',
    ]
    source = write(tmp_path / "a.jsonl", *rows)
    prompt, answer = check_rows(source, COLUMNS)
    assert prompt.message == f"{source}:2: 2 of 3 rows have no column prompt or messages or input"
    assert prompt.fix == "the row has promt, awnser; rename promt?"
    assert answer.message.endswith(
        "have no column answer or label or ground_truth or reward_model.ground_truth"
    )
    assert "rename awnser?" in answer.fix


def test_broken_lines_and_missing_columns_are_said_together(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", "{", '{"prompt": "p"}')
    assert [finding.code for finding in check_rows(source, COLUMNS)] == ["M516", "M517"]


def test_an_environment_that_needs_no_columns_is_asked_for_none(tmp_path: Path) -> None:
    assert check_rows(write(tmp_path / "a.jsonl", '{"n": 1}'), ()) == []


@pytest.mark.parametrize(
    ("name", "text"), [("a.jsonl", ""), ("a.jsonl", "\n\n"), ("a.csv", ""), ("a.csv", "prompt,answer\n")]
)
def test_a_file_without_rows_is_refused(tmp_path: Path, name: str, text: str) -> None:
    source = write(tmp_path / name, text)
    assert problems(source) == [f"data {source!r} holds no rows"]
    with pytest.raises(ConfigError, match="holds no rows"):
        read_rows(source)


def test_a_missing_file_offers_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", "{}")
    (finding,) = check_rows(str(tmp_path / "trian.jsonl"), COLUMNS)
    assert "does not exist" in finding.message
    assert finding.fix == f"did you mean {str(tmp_path / 'train.jsonl')!r}?"
    with pytest.raises(ConfigError, match="does not exist"):
        read_rows(str(tmp_path / "trian.jsonl"))


def test_a_folder_and_an_unknown_suffix_are_refused(tmp_path: Path) -> None:
    for source in (str(tmp_path), write(tmp_path / "a.txt", "hello")):
        (finding,) = check_rows(source, COLUMNS)
        assert "wanted a .jsonl, .csv or .parquet file" in finding.message


def test_csv_rows_keep_quotes_commas_and_line_breaks(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", 'prompt,answer\r\n"one, ""two""\nthree",4\r\n')
    assert list(read_rows(source)) == [{"prompt": 'one, "two"\nthree', "answer": "4"}]


def test_csv_lines_of_another_length_are_named(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "prompt,answer", "p,a", "only", "p,a,more,still", "p,a")
    assert problems(source) == [
        f"{source}:3: 1 fields, wanted 2 as in the header",
        f"{source}:4: 4 fields, wanted 2 as in the header",
    ]


def test_parquet_rows_and_their_columns(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"prompt": [{"role": "user", "content": "2+2?"}], "reward_model": {"ground_truth": "4"}}]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert list(read_rows(str(path))) == rows
    assert problems(str(path)) == []
    path.write_bytes(b"no parquet")
    assert "not parquet" in problems(str(path))[0]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("owner/name", True),
        ("openai/gsm8k:main@train[:100]", True),
        ("gone.jsonl", True),
        ("arithmetic", False),
    ],
)
def test_names_of_environments_are_told_from_files_and_hub_ids(source: str, wanted: bool) -> None:
    assert is_file_or_hub(source) is wanted


def test_a_hub_id_is_noted_and_not_looked_up() -> None:
    pytest.importorskip("datasets")
    (finding,) = check_rows("owner/name@test", COLUMNS)
    assert finding.level == "note"


def test_a_hub_data_set_is_read_by_name_configuration_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked = []

    def load(name: str, config: str | None, *, split: str) -> object:
        asked.append((name, config, split))
        return datasets.Dataset.from_list([{"prompt": "p", "answer": "a"}])

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_rows("openai/gsm8k:main@test")[0] == {"prompt": "p", "answer": "a"}
    assert asked == [("openai/gsm8k", "main", "test")]


def test_checking_local_rows_imports_nothing_heavy(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", '{"prompt": "p", "answer": "a"}')
    program = (
        "import sys; from molt_core.data.rows import check_rows; "
        f"assert check_rows({source!r}, (('prompt',),)) == []; "
        "print([name for name in ('numpy', 'pyarrow', 'datasets', 'torch') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
