"""Whatever is wrong with the input is said before anything starts, all at once, with exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from molt_core.cli.main import main

GOOD = {"--model": "tiny", "--data": "arithmetic", "--max-tokens": "8"}


def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str, **changes: str) -> tuple[int, str]:
    flags = GOOD | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    said = [word for pair in flags.items() for word in pair]
    code = main(["run", *words, *said, "--output-dir", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists(), "nothing may be written"
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temprature": "1"}, ["--temprature", "--temperature"]),
        ({"estimator": "gpro"}, ["gpro", "grpo"]),
        ({"strategy": "expert-parallel"}, ["--strategy"]),
        ({"lr": "fast"}, ["--lr", "fast"]),
        ({"lr": "-1"}, ["--lr", "> 0"]),
        ({"group_size": "2.5"}, ["--group-size", "2.5"]),
        ({"estimator": "grpo", "group_size": "1"}, ["grpo", "--group-size"]),
        ({"temperature": "0"}, ["--temperature"]),
        ({"max_tokens": "4096"}, ["--max-tokens", "1024"]),
        ({"data": "missing.jsonl", "env": "verify"}, ["missing.jsonl"]),
        ({"model": "smolm2"}, ["smolm2", "smollm2"]),
        ({"loss.clip_low": "2"}, ["--loss.clip-low", "< 1"]),
        ({"hook": "tensorbord"}, ["tensorbord", "tensorboard"]),
    ],
)
def test_a_wrong_flag_is_named_with_the_way_out(capsys, tmp_path, changes, said):
    code, text = run(capsys, tmp_path, **changes)

    assert code == 2
    for part in said:
        assert part in text
    assert "nothing was started" in text


def test_all_mistakes_are_told_at_once(capsys, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('lr = "high"\nsteps = 0\n\n[estimator]\nuse = "grpo"\nfoo = 1\n')
    code, text = run(capsys, tmp_path, str(file), temperature="0", max_tokenz="3")

    assert code == 2
    for part in (f"{file}:1", f"{file}:2", f"{file}:6", "--temperature", "--max-tokenz"):
        assert part in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no rows"),
        ('{"prompt": "a", "answer": 1}\n{broken\n', "data.jsonl:2"),
        ('{"prompt": "a", "answer": 1}\n[1]\n', "data.jsonl:2"),
        ('{"question": "a", "answer": 1}\n', "no column prompt or messages or input"),
        ('{"prompt": "a", "anwser": 1}\n', "rename anwser?"),
    ],
)
def test_broken_data_is_named_by_file_line_and_reason(capsys, tmp_path, content, said):
    file = tmp_path / "data.jsonl"
    file.write_text(content)
    code, text = run(capsys, tmp_path, env="verify", data=str(file))

    assert code == 2
    assert said in text


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("tokenizer.json", "tokenizer"),
        ("chat_template.jinja", "chat template"),
        ("config.json", "config.json"),
    ],
)
def test_a_model_folder_that_lacks_something_is_refused(capsys, tmp_path, missing, said):
    folder = tmp_path / "model"
    folder.mkdir()
    files = {
        "config.json": json.dumps({"architectures": ["X"], "max_position_embeddings": 64}),
        "tokenizer.json": "{}",
        "tokenizer_config.json": "{}",
        "chat_template.jinja": "x",
        "model.safetensors": "",
    }
    for name, content in files.items():
        if name != missing:
            (folder / name).write_text(content)
    code, text = run(capsys, tmp_path, model=str(folder))

    assert code == 2
    assert said in text


def test_an_existing_run_folder_is_never_overwritten(capsys, tmp_path):
    (tmp_path / "mine" / "run").mkdir(parents=True)
    said = [word for pair in GOOD.items() for word in pair]
    code = main(["run", *said, "--run-name", "run", "--output-dir", str(tmp_path / "mine")])

    assert code == 2
    assert "run" in capsys.readouterr().err
    assert list((tmp_path / "mine" / "run").iterdir()) == []
