"""`molt report`: reads a folder, changes nothing, and says what is wrong with what it reads."""

from __future__ import annotations

import json
from pathlib import Path

from molt_core.cli.main import main


def run_folder(path: Path, metrics: str = "") -> Path:
    path.mkdir()
    plan = {"run": {"model": "tiny", "dtype": "float32", "steps": 2}, "parts": {"trainers": [{}]}}
    (path / "plan.json").write_text(json.dumps(plan))
    (path / "config.toml").write_text("")
    (path / "metrics.jsonl").write_text(metrics)
    for step in (10, 9):
        (path / "checkpoints" / f"step_{step}").mkdir(parents=True)
    return path


def test_the_report_of_a_folder_is_printed_and_the_folder_left_as_it_is(tmp_path, capsys):
    folder = run_folder(
        tmp_path / "one", '{"step": 1, "reward/mean": 0.5, "time/step_s": 61.0}\n{"step": 2, "rew'
    )
    before = sorted(path.name for path in folder.iterdir())

    assert main(["report", str(folder)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"run         {folder}"
    assert "steps       1 of 2 in 1m01s" in told
    assert told[-1] == "checkpoints step_9, step_10"
    assert sorted(path.name for path in folder.iterdir()) == before


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "is no run" in capsys.readouterr().err


def test_a_broken_file_is_named_with_its_line(tmp_path, capsys):
    folder = run_folder(tmp_path / "one", "nonsense\n{}\n")

    assert main(["report", str(folder)]) == 2
    assert "metrics.jsonl:1" in capsys.readouterr().err
