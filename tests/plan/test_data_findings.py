"""What is wrong with the rows is said before anything starts, with the flag that named them."""

from __future__ import annotations

from pathlib import Path

from molt_core.api.findings import Finding
from molt_core.plan.check import examine
from molt_core.plugins.scan import Scan


def found(scan: Scan, *argv: str) -> list[Finding]:
    base = ["--model", "tiny", "--env", "verify", "--eval-prompts", "0"]
    return list(examine([*base, *argv], scan).findings)


def test_an_environment_that_makes_no_tasks_needs_data(stand_ins: Scan) -> None:
    assert [finding.code for finding in found(stand_ins)] == ["M501"]


def test_sound_rows_have_no_findings(stand_ins: Scan) -> None:
    Path("rows.jsonl").write_text('{"prompt": "1+1", "label": "2"}\n')
    assert found(stand_ins, "--data", "rows.jsonl") == []


def test_missing_file_broken_line_missing_column_and_empty_data_are_errors(stand_ins: Scan) -> None:
    Path("broken.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n{"prompt": \n')
    Path("other.jsonl").write_text('{"prompt": "1+1"}\n')
    Path("empty.jsonl").write_text("")
    for name in ("gone.jsonl", "broken.jsonl", "other.jsonl", "empty.jsonl"):
        (finding, *_) = found(stand_ins, "--data", name)
        assert finding.level == "error"
        assert finding.code.startswith("M5")
        assert name in finding.message
        assert finding.because[-1].origin == "--data"


def test_evaluation_data_is_looked_at_too(stand_ins: Scan) -> None:
    Path("rows.jsonl").write_text('{"prompt": "1+1", "label": "2"}\n')
    findings = found(stand_ins, "--data", "rows.jsonl", "--eval-data", "gone.jsonl", "--eval-prompts", "4")
    assert [finding.because[-1].origin for finding in findings] == ["--eval-data"]


def test_evaluation_without_tasks_of_its_own_needs_data(stand_ins: Scan) -> None:
    Path("rows.jsonl").write_text('{"prompt": "1+1", "label": "2"}\n')
    findings = found(stand_ins, "--data", "rows.jsonl", "--eval-prompts", "4")
    assert [finding.code for finding in findings] == ["M308"]
