"""Packaged models are made in a process of their own, in the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from molt_core.errors import PreflightError
from molt_core.launch.model_process import cache_root
from molt_core.launch.prepared_model import prepare_model
from molt_core.plan.check import examine
from molt_core.plan.plan import Plan, freeze
from molt_core.plugins.scan import scan


def plan_of(*flags: str) -> Plan:
    return freeze(examine(["--data", "arithmetic", *flags], scan()).view)


def make(plan: Plan, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "molt_core.launch.model_process"], input=plan.to_json(), capture_output=True,
        text=True, timeout=120, check=False, env={**os.environ, "MOLT_CACHE": str(cache)},
    )  # fmt: skip


def test_the_last_line_is_the_folder_that_holds_the_model(tmp_path):
    done = make(plan_of("--model", "tiny"), tmp_path)

    assert done.returncode == 0
    folder = Path(done.stdout.splitlines()[-1])
    assert folder.is_relative_to(tmp_path)
    assert (folder / "model.safetensors").is_file()


def test_a_cache_that_can_not_be_used_ends_with_the_environment_exit_code(tmp_path):
    (tmp_path / "file").write_text("")
    done = make(plan_of("--model", "tiny"), tmp_path / "file")

    assert done.returncode == 3
    assert "MOLT_CACHE" in done.stderr


def test_the_run_learns_length_and_end_tokens_from_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLT_CACHE", str(tmp_path))
    model = prepare_model(plan_of("--model", "tiny", "--max-length", "99", "--max-tokens", "8"))

    assert model.max_length == 99
    assert len(model.end_token_ids) == 1


def test_a_reference_with_other_tokens_than_a_packaged_model_is_refused_once_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOLT_CACHE", str(tmp_path / "cache"))
    reference = tmp_path / "reference"
    reference.mkdir()
    (reference / "config.json").write_text('{"vocab_size": 9999}')
    (reference / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    plan = plan_of("--model", "tiny", "--reference", str(reference), "--loss.kl-coef", "0.1")
    with pytest.raises(PreflightError, match="can't be compared: .* is token .* of the model"):
        prepare_model(plan)


def test_the_cache_root_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MOLT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == tmp_path / ".cache" / "molt"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_root() == tmp_path / ".cache" / "molt"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "molt"
    monkeypatch.setenv("MOLT_CACHE", "~/own")
    assert cache_root() == tmp_path / "own"
