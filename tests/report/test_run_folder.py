"""A run folder is made once and never overwritten."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from molt_core.errors import ConfigError, PreflightError
from molt_core.report.run_folder import RunFolder, default_run_name


def test_paths_are_those_of_the_contract(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs", "first")
    assert folder.path == tmp_path / "runs" / "first"
    named = (
        folder.plan,
        folder.config,
        folder.metrics,
        folder.ledger,
        folder.rollouts,
        folder.checkpoints,
        folder.latest,
    )
    assert [str(path.relative_to(folder.path)) for path in named] == [
        "plan.json", "config.toml", "metrics.jsonl", "ledger.jsonl", "rollouts", "checkpoints", "latest",
    ]  # fmt: skip


def test_plan_and_config_are_written_whole_and_leave_nothing_else(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a")
    folder.write(plan_json="{}\n", config_toml='model = "tiny"\n')
    assert folder.plan.read_text() == "{}\n"
    assert folder.config.read_text() == 'model = "tiny"\n'
    assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "config.toml", "plan.json"]


def test_an_existing_run_is_never_overwritten(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a")
    folder.metrics.write_text("old")
    with pytest.raises(ConfigError, match="exists, and a run is never overwritten"):
        RunFolder.create(tmp_path, "a")
    assert folder.metrics.read_text() == "old"


def test_a_dangling_link_or_a_file_of_that_name_is_somebodys_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").write_text("mine")
    for name in ("link", "file"):
        with pytest.raises(ConfigError):
            RunFolder.create(tmp_path, name)


def test_a_place_that_cannot_be_written_is_a_preflight_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreflightError, match="--output-dir"):
        RunFolder.create(tmp_path / "file" / "below", "a")


def test_default_name_tells_model_estimator_and_time_and_is_a_folder_name() -> None:
    now = datetime(2026, 3, 4, 5, 6, 7, 891_000).astimezone()
    name = default_run_name("owner/Some Model", "dist/my-estimator", now)
    assert name == "Some-Model-dist-my-estimator-20260304-050607-891"
    assert default_run_name("smollm2", "reinforce++", now).startswith("smollm2-reinforce++-")
    assert os.sep not in name
