"""Folders are made once, whole or not at all, whatever happens to the process or the disk."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from molt_plugin_models import cache
from molt_plugin_models.cache import damage, make_once

from molt_core.errors import PreflightError


class Builder:
    """Writes two files and counts how often."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, folder: Path) -> None:
        self.num_calls += 1
        (folder / "config.json").write_text('{"a": 1}')
        (folder / "weights").mkdir()
        (folder / "weights" / "part").write_bytes(b"x" * 100)


def test_a_second_call_builds_nothing(tmp_path: Path) -> None:
    build = Builder()
    first = make_once(tmp_path / "cache" / "model", "r1", build)
    second = make_once(tmp_path / "cache" / "model", "r1", build)
    assert first == second == tmp_path / "cache" / "model"
    assert build.num_calls == 1
    assert sorted(path.name for path in first.parent.iterdir()) == ["model", "model.lock"]


def test_the_manifest_lists_every_file_with_size_and_checksum(tmp_path: Path) -> None:
    folder = make_once(tmp_path / "model", "r1", Builder())
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["recipe"] == "r1"
    sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    assert sizes == {"config.json": 8, "weights/part": 100}


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("weights/part", b"x" * 99, "99 bytes instead of 100"),
        ("config.json", b'{"a": 2}', "another checksum"),
        ("config.json", None, "is missing"),
        ("manifest.json", b"{", "can't be read"),
        ("manifest.json", b"[]", "can't be read"),
        ("manifest.json", None, "is missing"),
    ],
)
def test_a_damaged_folder_is_made_again(
    tmp_path: Path, name: str, content: bytes | None, complaint: str
) -> None:
    build = Builder()
    folder = make_once(tmp_path / "model", "r1", build)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    assert complaint in str(damage(folder, "r1"))
    make_once(folder, "r1", build)
    assert build.num_calls == 2
    assert damage(folder, "r1", full=True) is None


def test_only_the_full_check_hashes_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SMALL_BYTES", 50)
    folder = make_once(tmp_path / "model", "r1", Builder())
    (folder / "weights" / "part").write_bytes(b"y" * 100)
    assert damage(folder, "r1") is None
    assert damage(folder, "r1", full=True) == "weights/part has another checksum"


def test_another_recipe_makes_the_folder_again(tmp_path: Path) -> None:
    build = Builder()
    folder = make_once(tmp_path / "model", "r1", build)
    make_once(folder, "r2", build)
    assert build.num_calls == 2
    assert damage(folder, "r1") == "made by the recipe 'r2'"


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        make_once(tmp_path / "model", "r1", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["model.lock"]
    assert make_once(tmp_path / "model", "r1", Builder()).is_dir()


BUILDER_PROCESS = """
import sys, time
from pathlib import Path
from molt_plugin_models.cache import make_once

def build(folder):
    (folder / "half").write_text("")
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    print("building", flush=True)
    time.sleep(float(sys.argv[3]))

make_once(Path(sys.argv[1]), "r1", build)
"""


def start_builder(folder: Path, log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER_PROCESS, str(folder), str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_build_one_folder_once(tmp_path: Path) -> None:
    processes = [start_builder(tmp_path / "model", tmp_path / "log", 0.3) for _ in range(2)]
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0]
    assert (tmp_path / "log").read_text() == "built\n"


def test_what_a_killed_process_left_is_never_used_and_is_cleared_away(tmp_path: Path) -> None:
    process = start_builder(tmp_path / "model", tmp_path / "log", 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "building\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert not (tmp_path / "model").exists()
    folder = make_once(tmp_path / "model", "r1", Builder())
    assert not (folder / "half").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "model", "model.lock"]


def test_waiting_for_another_process_has_a_deadline(tmp_path: Path) -> None:
    with (tmp_path / "model.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(
            PreflightError, match=r"another process has been making .*model for more than 0\.2 s"
        ):
            make_once(tmp_path / "model", "r1", Builder(), wait_s=0.2)


def test_a_cache_that_cannot_be_used_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(PreflightError, match="MOLT_CACHE"):
        make_once(tmp_path / "file" / "models" / "model", "r1", Builder())
