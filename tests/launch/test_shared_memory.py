"""Folders in memory: a model's weights must not stay there when whoever wrote them was killed."""

from __future__ import annotations

import subprocess
import sys

from molt_core.launch.shared_memory import SharedFolder

OTHER = """
import sys
from pathlib import Path
from molt_core.launch.shared_memory import SharedFolder
folder = SharedFolder(Path(sys.argv[1]))
(folder.path / "weights").write_bytes(b"heavy")
print(folder.path.name, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_goes_when_the_next_folder_is_made(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        theirs = tmp_path / other.stdout.readline().strip()
        ours = SharedFolder(tmp_path)
        assert (theirs / "weights").exists(), "it lives"
        other.kill()
    assert (theirs / "weights").exists()
    last = SharedFolder(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([ours.path, last.path])
    for folder in (ours, last):
        folder.remove()
    assert list(tmp_path.iterdir()) == []
