"""A disk that is full or read-only: a clear end, nothing half-written that looks whole, and a way on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from molt_core.errors import RunError
from molt_core.launch.checkpoint import find
from molt_core.report.json_lines import JsonLines, read_json_lines
from tests.road.conftest import DIGITS, EMBEDDED, Run

FLAGS = (*DIGITS, *EMBEDDED, "--steps", "4", "--save-every", "1", "--eval-prompts", "0", "--deterministic")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A small disk; called again with other options, the same one."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> Path:
        verb = f"remount,{options}" if place.is_mount() else options
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", verb, "none", str(place)], capture_output=True)
        if done.returncode != 0:
            pytest.skip("needs the right to mount a file system")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.real
def test_a_full_disk_ends_the_run_with_the_cause_and_the_last_good_checkpoint(disk):
    # each checkpoint of the tiny model has 2.4 MB, and the one before is removed only when the next is complete
    place = disk("size=6m")
    run = Run(place, *FLAGS, forked=True)
    try:
        code, output = run.wait()
        assert code == 4, output
        assert "No space left on device" in output
        assert "Traceback" not in output
        found = find(run.folder / "checkpoints")
        assert found.damaged == ()
        assert found.state["step"] == 2
        assert list((run.folder / "checkpoints").glob(".step_*")) == []

        disk("size=60m")
        code, output = Run(place, command="resume", forked=True).wait()
        assert code == 0, output
        assert f"going on after step {found.state['step']}" in output
        assert [step["step"] for step in run.steps()] == [1, 2, 3, 4]

        disk("ro")
        code, output = Run(place, "--steps", "9", command="resume", forked=True).wait()
        assert code == 3, output
        assert "can't be written" in output
        assert "Traceback" not in output
    finally:
        run.end()


def test_a_line_that_cannot_be_written_is_an_error_that_names_the_file_and_leaves_whole_lines(disk):
    place = disk("size=8k")
    lines = JsonLines(place / "metrics.jsonl")

    def fill() -> None:
        for step in range(10_000):
            lines.write({"step": step})

    with pytest.raises(RunError, match=r"metrics.jsonl can't be written: .*No space left"):
        fill()
    lines.close()
    JsonLines(place / "metrics.jsonl").close()

    records = read_json_lines(place / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(len(records)))
    assert len(records) > 100
