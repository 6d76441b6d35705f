"""The core's rules about numbers, folders and evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from molt_core.api.findings import Finding
from molt_core.plan.check import examine
from molt_core.plugins.scan import Scan


def found(scan: Scan, *argv: str) -> list[Finding]:
    argv = argv if "--env" in argv else ("--env", "arithmetic", *argv)
    return list(examine(["--model", "tiny", *argv], scan).findings)


@pytest.mark.parametrize(
    ("argv", "level", "code", "origin"),
    [
        (("--estimator", "grpo", "--group-size", "1"), "error", "M301", "--group-size"),
        (("--temperature", "0"), "error", "M302", "--temperature"),
        (("--temperature", "-0.5"), "error", "M302", "--temperature"),
        (("--max-tokens", "1024"), "error", "M303", "--max-tokens"),
        (("--max-length", "64", "--max-tokens", "64"), "error", "M303", "--max-tokens"),
        (("--max-length", "1025"), "error", "M304", "--max-length"),
        (("--run-name", "a/b"), "error", "M306", "--run-name"),
        (("--run-name", ".."), "error", "M306", "--run-name"),
        (("--eval-prompts", "0", "--eval-every", "5"), "error", "M307", "--eval-every"),
        (("--eval-every", "200"), "warning", "M309", "--eval-every"),
        (("--eval-samples", "4"), "warning", "M310", "--eval-samples"),
        (("--trainer-ranks", "64"), "warning", "M311", "default"),
        (("--min-engines", "2"), "error", "M317", "--min-engines"),
        (("--keep-best", "eval/other/pass@1"), "error", "M318", "--keep-best"),
        (("--keep-best", "reward_mean"), "error", "M318", "--keep-best"),
        (("--keep-best", "eval/arithmetic/pass@2"), "error", "M318", "--keep-best"),
    ],
)
def test_rule_fires_once_and_names_the_origin(
    stand_ins: Scan, argv: tuple[str, ...], level: str, code: str, origin: str
) -> None:
    (finding,) = found(stand_ins, *argv)
    assert (finding.level, finding.code, finding.because[0].origin) == (level, code, origin)


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("--estimator", "grpo", "--group-size", "2"),
        ("--estimator", "reinforce++", "--group-size", "1"),
        ("--max-tokens", "1023"),
        ("--max-length", "1024"),
        ("--eval-samples", "4", "--eval-temperature", "1"),
        ("--run-name", "first"),
        ("--keep-best", "eval/arithmetic/pass@1"),
        ("--keep-best", "eval/arithmetic/env/anything"),
    ],
)
def test_what_is_fine_has_no_findings(stand_ins: Scan, argv: tuple[str, ...]) -> None:
    assert found(stand_ins, *argv) == []


def test_an_output_folder_below_a_file_can_not_be_made(stand_ins: Scan) -> None:
    Path("runs").write_text("")
    (finding,) = found(stand_ins)
    assert finding.code == "M305"
    assert [one.code for one in found(stand_ins, "--output-dir", "runs/deeper")] == ["M305"]


def test_an_existing_run_is_refused(stand_ins: Scan) -> None:
    Path("runs/first").mkdir(parents=True)
    (finding,) = found(stand_ins, "--run-name", "first")
    assert finding.code == "M306"
    assert "never overwritten" in finding.message


def test_rules_of_plugins_are_asked(stand_ins: Scan) -> None:
    assert [one.code for one in found(stand_ins, "--estimator", "rank", "--steps", "13")] == ["X101"]
    assert found(stand_ins, "--estimator", "rank", "--steps", "12") == []
