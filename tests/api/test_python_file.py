"""Files of the user: looked at without being run, and run once."""

from __future__ import annotations

from pathlib import Path

import pytest

from molt_core.api.python_file import absolute, definitions, load, split
from molt_core.errors import MoltError

SOURCE = """
import json
from math import sqrt as root
LIMIT = 3

class Base:
    def step(self, reply): ...
    def close(self): ...

class Guess(Base):
    async def reset(self, row): ...

class Round(Round): ...

def solve(task, session):
    inner = 1
"""


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("./a.py:Name", (Path("a.py"), "Name")),
        ("/odd:folder/a.py:Name", (Path("/odd:folder/a.py"), "Name")),
        ("a.py", (Path("a.py"), "")),
        ("a.py:", (Path("a.py"), "")),
        ("package.module:Name", None),
        ("verify", None),
        ("dist/name", None),
    ],
)
def test_a_text_names_a_file_only_in_one_form(text, parts):
    assert split(text) == parts


def test_paths_are_made_absolute_and_other_texts_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute("a.py:f") == f"{tmp_path}/a.py:f"
    assert absolute("verify") == "verify"


def test_names_and_methods_are_read_without_running_the_file(tmp_path):
    found = definitions(written(tmp_path, SOURCE + "raise SystemExit\n"))

    assert {"json", "root", "LIMIT", "Base", "Guess", "solve"} <= found.names
    assert found.methods["Guess"] == {"reset", "step", "close"}
    assert found.methods["Round"] == set(), "a class that names itself as its base is no reason to hang"
    assert found.missing("Gues") == "did you mean Guess?"


@pytest.mark.parametrize(
    ("text", "said"),
    [("def f(:\n", "mine.py:1: not Python"), ("x = '\0'", "not Python"), (None, "No such file")],
)
def test_what_can_not_be_looked_at_is_told_with_its_line(tmp_path, text, said):
    path = tmp_path / "mine.py" if text is None else written(tmp_path, text)
    with pytest.raises(ValueError, match=said):
        definitions(path)


def test_a_file_is_run_once_and_finds_its_neighbours(tmp_path):
    written(tmp_path, "def word():\n    return 'here'\n", "neighbour_of_mine.py")
    path = written(
        tmp_path,
        "from neighbour_of_mine import word\nRUNS = []\nRUNS.append(1)\ndef f():\n    return len(RUNS), word()\n",
    )

    assert load(path, "f")() == (1, "here")
    assert load(path, "f") is load(path, "f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0\n", "fails on import: ZeroDivisionError"),
        ("f = 3\n", "is 3, wanted a function"),
        ("", "is None"),
    ],
)
def test_what_can_not_be_loaded_names_the_file(tmp_path, text, said):
    with pytest.raises(MoltError, match=f"mine.py'.*{said}"):
        load(written(tmp_path, text), "f")
