"""Checkpoints appear whole or not at all, and old ones go only after the new one is there."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from molt_core.launch.checkpoint import begin, commit


def save(run_folder: Path, step: int, *, keep: int = 2) -> Path:
    unfinished = begin(run_folder / "checkpoints", step)
    (unfinished / "model.safetensors").write_bytes(f"weights {step}".encode())
    (unfinished / "trainer_state").mkdir()
    (unfinished / "trainer_state" / "part").write_text("x")
    return commit(unfinished, step, {"step": step}, keep=keep)


def test_a_checkpoint_lists_every_file_with_size_and_checksum(tmp_path):
    folder = save(tmp_path, 3)

    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest) == ["loop.json", "model.safetensors", "trainer_state/part"]
    assert manifest["model.safetensors"] == {
        "bytes": 9,
        "sha256": hashlib.sha256(b"weights 3").hexdigest(),
    }
    assert json.loads((folder / "loop.json").read_text()) == {"step": 3}


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
