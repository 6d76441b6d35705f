"""`.ci/run`: stops at the first failure, and leaves no process behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    return tmp_path


def write_makefile(clone: Path, **recipes: str) -> None:
    targets = {
        "install": "echo installed",
        "check": "echo checked",
        "test": "echo '3 passed in 0.10s'",
    } | recipes
    (clone / "Makefile").write_text("".join(f"{name}:\n\t@{recipe}\n" for name, recipe in targets.items()))


def is_alive(pid: int) -> bool:
    try:
        # a killed process whose parent has not looked yet is a zombie
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still alive"
        time.sleep(0.05)


def test_it_installs_checks_and_ends_with_the_closing_line_of_the_tests(clone: Path) -> None:
    write_makefile(clone)
    answer = subprocess.run([clone / ".ci" / "run"], capture_output=True, text=True, check=True, cwd="/")
    assert answer.stdout.splitlines() == ["installed", "checked", "3 passed in 0.10s"]
    assert answer.stderr == ""


def test_a_failing_step_stops_it(clone: Path) -> None:
    write_makefile(clone, check="exit 1")
    answer = subprocess.run([clone / ".ci" / "run"], capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert answer.stdout == "installed\n"


def test_a_process_that_outlives_the_tests_is_ended_and_reported(clone: Path) -> None:
    # a session of its own, as daemons have, so that no process group would find it
    write_makefile(clone, test="setsid sleep 300 >/dev/null 2>&1 & echo $$! > pid; echo '1 passed in 0.01s'")
    answer = subprocess.run([clone / ".ci" / "run"], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "1 passed in 0.01s"
    pid = int((clone / "pid").read_text())
    assert f"outlived the tests: {pid}" in answer.stderr
    wait_until_dead(pid)


def test_being_stopped_ends_what_was_running(clone: Path) -> None:
    write_makefile(clone, test="sleep 300 & echo $$! > new; mv new pid; wait")
    run = subprocess.Popen([clone / ".ci" / "run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not (clone / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait(timeout=20) == 130
    wait_until_dead(int((clone / "pid").read_text()))
