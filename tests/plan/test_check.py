"""All findings of configuration and plan at once, without findings about stand-in values."""

from __future__ import annotations

from molt_core.plan.check import examine
from molt_core.plugins.scan import Scan


def codes(scan: Scan, *argv: str) -> set[str]:
    return {finding.code for finding in examine(argv, scan).findings if finding.level == "error"}


def test_mistakes_of_every_kind_are_shown_together(stand_ins: Scan) -> None:
    argv = [
        "--model", "./gone", "--env", "arithmetic", "--estimator", "grpo", "--group-size", "1",
        "--temperature", "0", "--max-staleness", "1", "--lr", "x", "--stepz", "3", "--hook", "nope",
    ]  # fmt: skip
    assert codes(stand_ins, *argv) == {"M101", "M121", "M122", "M301", "M302", "M403"}
    assert "M201" in codes(stand_ins, *argv[:-2]), "facts are compared once all plugins are known"


def test_a_wrong_value_is_reported_once_and_its_stand_in_never(stand_ins: Scan) -> None:
    argv = ["--model", "tiny", "--env", "arithmetic", "--max-length", "32", "--max-tokens", "many"]
    assert codes(stand_ins, *argv) == {"M122"}


def test_without_model_the_model_is_not_judged(stand_ins: Scan) -> None:
    assert codes(stand_ins, "--env", "arithmetic") == {"M123"}
    assert codes(stand_ins, "--env", "arithmetic", "--temperature", "0") == {"M123", "M302"}


def test_errors_come_before_warnings_and_notes(stand_ins: Scan) -> None:
    argv = ["--model", "org/name", "--env", "arithmetic", "--eval-samples", "2", "--temperature", "0"]
    examined = examine(argv, stand_ins)
    assert [finding.level for finding in examined.findings] == ["error", "warning", "note"]
    assert examined.has_errors
