"""Checkpoints appear whole or not at all, and old ones go only after the new one is there."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from molt_core.launch.checkpoint import Keep, begin, commit, find, set_aside


def save(run_folder: Path, step: int, *, keep: int = 2, hours: float = 0.0, scores=None) -> Path:
    unfinished = begin(run_folder / "checkpoints", step)
    (unfinished / "model.safetensors").write_bytes(f"weights {step}".encode())
    (unfinished / "trainer_state").mkdir()
    (unfinished / "trainer_state" / "part").write_text("x")
    return commit(
        unfinished, step, {"step": step, "version": step, "scores": scores or {}}, keep=Keep(newest=keep, hours=hours)
    )  # fmt: skip


def test_a_checkpoint_lists_every_file_with_size_and_checksum(tmp_path):
    folder = save(tmp_path, 3)

    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest) == ["loop.json", "model.safetensors", "trainer_state/part"]
    assert manifest["model.safetensors"] == {
        "bytes": 9,
        "sha256": hashlib.sha256(b"weights 3").hexdigest(),
    }
    assert json.loads((folder / "loop.json").read_text())["step"] == 3


def test_latest_points_to_the_newest_and_moves_with_the_run_folder(tmp_path):
    save(tmp_path / "run", 1)
    save(tmp_path / "run", 10)
    (tmp_path / "run").rename(tmp_path / "moved")

    assert (tmp_path / "moved" / "latest").resolve().name == "step_10"


def test_only_the_newest_are_kept_by_number_not_by_name(tmp_path):
    for step in (8, 9, 10, 11):
        save(tmp_path, step)

    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_10", "step_11"]


def test_what_is_left_of_an_unfinished_one_is_replaced(tmp_path):
    stale = begin(tmp_path / "checkpoints", 5)
    (stale / "half").write_text("")

    assert not (save(tmp_path, 5) / "half").exists()


def test_killed_half_way_nothing_is_picked_up(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from molt_core.launch.checkpoint import begin\n"
        "folder = begin(Path(sys.argv[1]), 7); (folder / 'model.safetensors').write_text('half'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "checkpoints")], check=False)

    assert list((tmp_path / "checkpoints").glob("step_*")) == []
    assert not os.path.lexists(tmp_path / "latest")


def names(run_folder: Path) -> list[str]:
    return sorted(path.name for path in (run_folder / "checkpoints").iterdir())


def test_the_version_that_was_evaluated_best_is_kept_and_linked_however_old(tmp_path):
    for step, scores in [
        (1, {"1": 0.5}),
        (2, {"1": 0.5, "2": 0.9}),
        (3, {"2": 0.9}),
        (4, {"2": 0.9, "4": 0.1}),
    ]:
        save(tmp_path, step, keep=1, scores=scores)

    assert names(tmp_path) == ["step_2", "step_4"]
    assert (tmp_path / "best").resolve().name == "step_2"
    assert (tmp_path / "latest").resolve().name == "step_4"


def test_young_ones_are_kept_beyond_the_number(tmp_path):
    for step in (1, 2, 3):
        folder = save(tmp_path, step, keep=1, hours=1.0)
        if step == 1:
            os.utime(folder / "manifest.json", (0, 0))

    assert names(tmp_path) == ["step_2", "step_3"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"WEIGHTS 9"), "checksum differs"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"w"), "has 1 bytes, the manifest says 9"),
        (lambda folder: (folder / "trainer_state" / "part").unlink(), "trainer_state/part is missing"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest can't be read"),
        (lambda folder: (folder / "manifest.json").write_text("[1"), "manifest can't be read"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_with_what_is_wrong(tmp_path, damage, said):
    save(tmp_path, 8)
    damage(save(tmp_path, 9))
    found = find(tmp_path / "checkpoints")

    assert found.folder.name == "step_8"
    assert found.state["step"] == 8
    (wrong,) = found.damaged
    assert wrong.startswith("step_9: ")
    assert said in wrong


def test_a_damaged_checkpoint_that_was_set_aside_never_counts_again(tmp_path):
    good = save(tmp_path, 8)
    (save(tmp_path, 9) / "model.safetensors").unlink()
    set_aside(tmp_path / "checkpoints", good)

    assert names(tmp_path) == ["step_8", "step_9.damaged"]
    assert (tmp_path / "latest").resolve() == good
    assert find(tmp_path / "checkpoints").damaged == ()
    save(tmp_path, 9)
    assert names(tmp_path) == ["step_8", "step_9", "step_9.damaged"]


def test_where_nothing_was_saved_nothing_is_found(tmp_path):
    begin(tmp_path / "checkpoints", 3)
    assert find(tmp_path / "checkpoints").folder is None
    assert find(tmp_path / "nowhere").folder is None
