"""--reference: a folder that is there, with the policy's tokens, and somebody who compares with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from molt_core.api.findings import Finding
from molt_core.cli.main import main
from molt_core.plan.check import examine
from molt_core.plugins.scan import scan

DISTILL = ("--estimator", "on_policy_distill")


def model(folder: Path, vocabulary: dict[str, int], vocab_size: int = 8, **more: object) -> Path:
    """As much of a model's folder as a check looks at."""
    folder.mkdir()
    config = {"max_position_embeddings": 2048, "vocab_size": vocab_size}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, **more}))
    (folder / "chat_template.jinja").write_text("")
    return folder


def found(*argv: object) -> list[Finding]:
    words = [str(word) for word in ("--env", "arithmetic", "--eval-prompts", 0, *argv)]
    findings = examine(words, scan()).findings
    return [finding for finding in findings if finding.level != "note"]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return model(tmp_path / "policy", {"a": 0, "b": 1})


def test_a_teacher_with_the_policy_s_tokens_has_no_findings(policy: Path, tmp_path: Path) -> None:
    teacher = model(tmp_path / "teacher", {"b": 1, "a": 0}, added_tokens=[])
    assert found("--model", policy, "--reference", teacher, *DISTILL) == []


def test_a_teacher_is_asked_for_with_its_flag(policy: Path) -> None:
    (finding,) = found("--model", policy, *DISTILL)
    assert (finding.code, finding.fix.startswith("--reference MODEL")) == ("M202", True)


@pytest.mark.parametrize("name", ["nothing-here", "./no/where"])
def test_a_folder_that_is_not_there_is_named_with_its_flag(policy: Path, name: str) -> None:
    (finding,) = found("--model", policy, "--reference", name, *DISTILL)
    assert finding.code == "M408"
    assert finding.because[0].origin == "--reference"


def test_a_folder_without_a_config_is_no_model(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (finding,) = found("--model", policy, "--reference", tmp_path / "empty", *DISTILL)
    assert finding.code == "M408"


@pytest.mark.parametrize(
    ("vocabulary", "more", "said"),
    [
        ({"a": 1, "b": 0}, {}, "'a' is token 0 of the model and 1 in"),
        ({"a": 0}, {}, "'b' is token 1 of the model and no token of"),
        ({"a": 0, "b": 1}, {"vocab_size": 4}, "token ids go up to 7 in"),
    ],
)
@pytest.mark.parametrize("use", [DISTILL, ("--loss.kl-coef", 0.1), ("--estimator.kl-coef", 0.1)], ids=str)
def test_other_tokens_are_refused_whoever_compares_them(
    policy: Path, tmp_path: Path, vocabulary: dict[str, int], more: dict[str, int], said: str, use: tuple[str]
) -> None:
    teacher = model(tmp_path / "teacher", vocabulary, **more)
    (finding,) = found("--model", policy, "--reference", teacher, *use)
    assert (finding.level, finding.code) == ("error", "M409")
    assert said in finding.message
    assert [source.origin for source in finding.because] == ["--model", "--reference"]
    assert finding.fix


def test_special_tokens_are_compared_too(tmp_path: Path) -> None:
    vocabulary = {"a": 0, "b": 1}
    policy = model(tmp_path / "policy", vocabulary, added_tokens=[{"content": "<end>", "id": 2}])
    teacher = model(tmp_path / "teacher", vocabulary, added_tokens=[{"content": "<end>", "id": 3}])
    (finding,) = found("--model", policy, "--reference", teacher, *DISTILL)
    assert "'<end>' is token 2 of the model and 3 in" in finding.message


def test_such_a_run_is_refused_with_exit_code_2_before_anything_is_written(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = model(tmp_path / "teacher", {"a": 1, "b": 0})
    flags = ("--model", str(policy), "--reference", str(teacher), "--output-dir", str(tmp_path / "runs"))
    assert main(["run", "--env", "arithmetic", *flags, *DISTILL]) == 2
    assert "--reference" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_critic_with_other_tokens_is_refused(policy: Path, tmp_path: Path) -> None:
    critic = model(tmp_path / "critic", {"a": 1, "b": 0})
    argv = ("--model", policy, "--estimator", "gae", "--trainer.critic-model")
    (finding,) = found(*argv, critic)
    assert (finding.code, finding.because[1].origin) == ("FSDP3", "--trainer.critic-model")
    assert found(*argv, policy) == []


def test_a_reference_that_nobody_compares_with_is_a_warning(policy: Path) -> None:
    (finding,) = found("--model", policy, "--reference", policy)
    assert (finding.level, finding.code) == ("warning", "M315")
    assert found("--model", policy, "--reference", policy, "--loss.kl-coef", 0.1) == []
    assert found("--model", policy, "--reference", policy, "--estimator.kl-coef", 0.1) == []
