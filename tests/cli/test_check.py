"""`molt check` as a user runs it: exit code, findings, and what it does not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "ray", "vllm", "transformers")
STAND_INS = Path(__file__).parents[1] / "stand_ins"

RUN = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
import molt_stand_ins
import molt_core.plugins.scan as scan
scan.scan = lambda: molt_stand_ins.SCAN
from molt_core.cli.main import main
code = main(sys.argv[1:])
print("heavy:", [name for name in {heavy!r} if name in sys.modules])
sys.exit(code)
"""


def molt(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """`molt argv` with the plugins of `molt_stand_ins` installed."""
    command = [sys.executable, "-c", RUN.format(heavy=HEAVY), str(STAND_INS), *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_sound_run_exits_0_and_says_what_would_run(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'model = "tiny"\ndata = "rows.jsonl"\neval_prompts = 0\nenv = "verify"\n'
    )
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    done = molt(tmp_path, "check", "run.toml", "--estimator", "grpo", "--hook", "tensorboard")
    assert (done.returncode, done.stderr) == (0, "")
    assert "grpo         molt-plugin-estimators 0.1.0" in done.stdout
    assert "no findings." in done.stdout
    assert "heavy: []" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl", "run.toml"], (
        "nothing is written"
    )


def test_every_mistake_is_shown_with_its_place_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        'model = "./empty"\nlr = "fast"\ngroup_sise = 4\n[estimator]\nuse = "grpo"\nkl_coef = -1\n'
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n{"prompt"\n')
    done = molt(
        tmp_path, "check", "bad.toml", "--env", "verify", "--data", "rows.jsonl", "--eval-data", "gone.jsonl",
        "--group-size", "1", "--temperature", "0", "--max-tokens", "9000", "--enginee", "vllm", "--engine", "vllmm",
        "--hook.tensorboard.every", "0", "--steps", "1.5",
    )  # fmt: skip
    assert done.returncode == 2
    for words in (
        "bad.toml:2: lr = 'fast': must be a number",
        "bad.toml:3: group_sise = 4: there is no such key",
        "did you mean group_size?",
        "bad.toml:6: estimator.kl_coef = -1: must be >= 0",
        "--enginee vllm: there is no such flag",
        "no engine is named 'vllmm'; did you mean 'vllm'?",
        "hook 'tensorboard' is not turned on",
        "--steps 1.5: must be a whole number",
        "estimator 'grpo' compares rollouts of one prompt",
        "group_size = 1  (--group-size)",
        "temperature must be > 0 in training, got 0",
        "max_tokens is 9000",
        "no readable config.json",
        "holds no tokenizer",
        "has no chat template",
        "rows.jsonl:2: not JSON",
        "'gone.jsonl' does not exist",
        "errors; nothing was started.",
    ):
        assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "holds no rows"),
        ('{"prompt": "1+1"}\n', "1 of 1 row has no column answer or label"),
        ("[]\n", "wanted an object"),
    ],
)
def test_bad_data_is_an_error_with_file_and_reason(tmp_path: Path, rows: str, words: str) -> None:
    (tmp_path / "rows.jsonl").write_text(rows)
    done = molt(
        tmp_path, "check", "--model", "tiny", "--env", "verify", "--data", "rows.jsonl", "--eval-prompts", "0"
    )
    assert done.returncode == 2
    assert "rows.jsonl" in done.stderr
    assert words in done.stderr


def test_help_lists_flags_of_the_chosen_plugins(tmp_path: Path) -> None:
    done = molt(tmp_path, "check", "--estimator", "grpo", "--help")
    assert done.returncode == 0
    assert "usage: molt check" in done.stdout
    assert "--estimator.kl-coef" in done.stdout


def test_print_config_is_a_file_that_means_the_same(tmp_path: Path) -> None:
    argv = ("--model", "tiny", "--env", "arithmetic", "--lr", "1e-5")
    done = molt(tmp_path, "check", *argv, "--print-config")
    assert "lr = 1e-05  # --lr" in done.stdout
    (tmp_path / "again.toml").write_text(done.stdout.partition("heavy:")[0])
    again = molt(tmp_path, "check", "again.toml", "--print-config")
    values = [line.partition("  #")[0] for line in done.stdout.splitlines()]
    assert [line.partition("  #")[0] for line in again.stdout.splitlines()] == values


def test_the_real_command_exits_2_whatever_is_installed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "molt_core.cli.main", "check", "--lr", "fast", "--stepz", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--lr fast: must be a number" in done.stderr
    assert "--stepz 3: there is no such flag" in done.stderr
    assert "nothing was started." in done.stderr
