"""`molt eval` refuses what it can't evaluate before anything starts, and takes the files of `molt run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from molt_core.cli.main import main

GOOD = {"--model": "tiny", "--data": "arithmetic", "--max-tokens": "8"}


def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str, **changes: str) -> tuple[int, str]:
    flags = GOOD | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    said = [word for pair in flags.items() for word in pair]
    code = main(["eval", *words, *said, "--output-dir", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists(), "nothing may be written"
    output = capsys.readouterr()
    return code, output.out + output.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temprature": "1"}, "--temprature"),
        ({"eval_samples": "0"}, "--eval-samples"),
        ({"eval_temperature": "-1"}, "--eval-temperature"),
        ({"max_tokens": "4096"}, "1024"),
        ({"engine": "vlm"}, "did you mean 'vllm'"),
        ({"data": "missing.jsonl", "env": "verify"}, "missing.jsonl"),
        ({"data": "none", "env": "verify"}, "needs tasks"),
    ],
)
def test_a_wrong_flag_is_named(capsys, tmp_path, changes, said):
    code, text = run(capsys, tmp_path, **changes)
    assert code == 2
    assert said in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no rows"),
        ('{"prompt": "a", "answer": 1}\n{broken\n', "data.jsonl:2"),
        ('{"question": "a", "answer": 1}\n', "no column prompt or messages or input"),
    ],
)
def test_broken_data_is_named_by_file_and_line(capsys, tmp_path, content, said):
    file = tmp_path / "data.jsonl"
    file.write_text(content)
    code, text = run(capsys, tmp_path, env="verify", eval_data=str(file), data="examples/tiny.jsonl")
    assert code == 2
    assert said in text


def test_the_folder_of_a_run_without_checkpoint_is_no_model(capsys, tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    code, text = run(capsys, tmp_path, model=str(tmp_path))
    assert code == 2
    assert "saved no checkpoint" in text


def test_the_plan_of_an_evaluation_has_nothing_for_training(capsys, tmp_path):
    code, text = run(
        capsys, tmp_path, "--dry-run", lr="1", estimator="no-such", trainer="no-such", eval_samples="2"
    )
    assert code == 0
    assert "warning M131  not used by molt eval: lr, estimator, trainer" in text
    assert "warning M310" in text, "greedy replies are all equal"
    assert "trainers" not in text


def test_checking_imports_nothing_heavy(tmp_path):
    code = (
        "import sys; from molt_core.cli.main import main; "
        "main(['eval', '--model', 'tiny', '--data', 'arithmetic', '--max-tokens', '8', '--dry-run']); "
        "print([name for name in ('torch', 'ray', 'vllm', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("[]\n")
