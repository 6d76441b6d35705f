"""--reference: a folder that is there, with the policy's tokens, and somebody who compares with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from molt_core.api.findings import Finding
from molt_core.config.parse import configure
from molt_core.plan.check import check
from molt_core.plan.reference import same_tokens
from molt_core.plugins.scan import scan

DISTILL = ("--estimator", "on_policy_distill")


def model(folder: Path, vocabulary: dict[str, int], **more: object) -> Path:
    """As much of a model's folder as a check looks at."""
    folder.mkdir()
    (folder / "config.json").write_text('{"max_position_embeddings": 2048}')
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, **more}))
    (folder / "chat_template.jinja").write_text("")
    return folder


def found(*argv: object) -> list[Finding]:
    words = [str(word) for word in ("--env", "arithmetic", "--eval-prompts", 0, *argv)]
    _, findings = check(configure(words, scan()))
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


def test_other_tokens_are_refused(policy: Path, tmp_path: Path) -> None:
    teacher = model(tmp_path / "teacher", {"a": 1, "b": 0})
    assert not same_tokens(policy, teacher)
    (finding,) = found("--model", policy, "--reference", teacher, *DISTILL)
    assert finding.code == "M409"
    assert [source.origin for source in finding.because] == ["--model", "--reference"]


def test_a_reference_that_nobody_compares_with_is_a_warning(policy: Path) -> None:
    (finding,) = found("--model", policy, "--reference", policy)
    assert (finding.level, finding.code) == ("warning", "M315")
    assert found("--model", policy, "--reference", policy, "--loss.kl-coef", 0.1) == []
    assert found("--model", policy, "--reference", policy, "--estimator.kl-coef", 0.1) == []
