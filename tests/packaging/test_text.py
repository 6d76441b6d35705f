"""Nothing in the repository names the machine that it was written on."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(root|home|Users|work|farm)/\w")
PACKAGE_HOST = re.compile(r"https?://[\w.-]*(pypi|pythonhosted|artifactory|nexus|devpi|mirror)[\w.-]*")
INDEX = re.compile(r"index-url[\"'=,\s]+(https?://\S+|file:\S+)")
PYTORCH = "https://download.pytorch.org/whl/"


def tracked_lines() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.split("\0"):
        path = ROOT / name
        if name and path.is_file() and path.name != "LICENSE":
            for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
                yield f"{name}:{number}", line


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert [where for where, line in tracked_lines() if MACHINE_PATH.search(line)] == []


def test_no_file_names_a_package_index_but_the_public_one_of_pytorch() -> None:
    for where, line in tracked_lines():
        assert not PACKAGE_HOST.search(line), where
        index = INDEX.search(line)
        assert index is None or index[1].startswith(PYTORCH), where
