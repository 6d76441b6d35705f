"""The command that a run calls to get a packaged model's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = (
    "import sys; from molt_plugin_models.__main__ import main; code = main(sys.argv[1:]); "
    "sys.stderr.write('heavy: ' + ' '.join(sorted({'torch', 'transformers'} & set(sys.modules)))); sys.exit(code)"
)


def call(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MOLT_CACHE": str(cache)}
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_last_line_is_the_folder_and_a_second_call_imports_nothing_heavy(tmp_path: Path) -> None:
    first, second = call("tiny", cache=tmp_path), call("tiny", cache=tmp_path)
    assert (first.returncode, second.returncode) == (0, 0)
    assert (
        first.stdout.splitlines()[-1] == second.stdout.splitlines()[-1] == str(tmp_path / "models" / "tiny")
    )
    assert (tmp_path / "models" / "tiny" / "model.safetensors").is_file()
    assert second.stderr == "heavy: "


def test_an_unknown_name_is_a_configuration_error(tmp_path: Path) -> None:
    answer = call("huge", cache=tmp_path)
    assert answer.returncode == 2
    assert "tiny" in answer.stderr


def test_a_cache_that_cannot_be_used_ends_with_the_environment_exit_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = call("tiny", cache=tmp_path / "file")
    assert answer.returncode == 3
    assert "MOLT_CACHE" in answer.stderr


def test_the_module_runs_as_a_command(tmp_path: Path) -> None:
    environment = {**os.environ, "MOLT_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "molt_plugin_models", "tiny"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.splitlines()[-1] == str(tmp_path / "models" / "tiny")
