"""TOML files: lines of keys, hooks, broken files."""

from __future__ import annotations

from pathlib import Path

import pytest

from molt_core.config.files import key_lines, read_file

TEXT = '''\
# a comment with x = 1
model = "tiny"
hooks = ["tensorboard"]
note = """
lr = 5
"""
estimator = { use = "grpo", kl_coef = 0.1 }

[engine]
use = "vllm"
args = [
  "a=1",
]
[ hook."tensorboard" ]  # observers
every = 2
[trainer]
offload.size = 3
'''


def test_every_key_has_its_line() -> None:
    lines = key_lines(TEXT)
    assert lines["model",] == 2
    assert ("lr",) not in lines
    assert lines["engine", "args"] == 11
    assert lines["hook", "tensorboard"] == 14
    assert lines["hook", "tensorboard", "every"] == 15
    assert lines["trainer", "offload", "size"] == 17


def test_settings_have_keys_values_and_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(TEXT)
    settings = {setting.key: (setting.value, setting.origin) for setting in read_file("run.toml", 0).settings}
    assert settings["model"] == ("tiny", "run.toml:2")
    assert settings["hook"] == ("tensorboard", "run.toml:3")
    assert settings["estimator"] == ("grpo", "run.toml:7")
    assert settings["estimator.kl_coef"] == (0.1, "run.toml:7")
    assert settings["hook.tensorboard.every"] == (2, "run.toml:15")
    assert settings["engine.args"] == (["a=1"], "run.toml:11")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (b"steps = \n", "M125", "line 1"),
        (b"\xff\xfe", "M124", "can't be read"),
        (b"[estimator\n", "M125", "not valid TOML"),
        (b"[optimiser]\nlr = 1\n", "M121", "run.toml:1: [optimiser]"),
        (b"[hook]\ntensorboard = true\n", "M122", "run.toml:2"),
    ],
)
def test_broken_file_is_one_finding(tmp_path: Path, text: bytes, code: str, words: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(text)
    (finding,) = read_file(str(path), 0).findings
    assert finding.code == code
    assert words in finding.message


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert "no configuration file" in read_file("nowhere.toml", 0).findings[0].message
    assert read_file(str(tmp_path), 0).findings[0].code == "M124"
