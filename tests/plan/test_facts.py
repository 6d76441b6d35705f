"""Facts that contradict each other are found before anything starts, with both sides and a way out."""

from __future__ import annotations

from typing import Any

import pytest

from molt_core.api.facts import GROUPED_SAMPLES, MIXED_VERSIONS, STRICTLY_ON_POLICY, VOCABULARY
from molt_core.api.findings import Finding
from molt_core.config.parse import configure
from molt_core.plan.check import examine
from molt_core.plan.facts import CORE_FACTS, core_facts
from molt_core.plugins.scan import Scan

ENOUGH = ("--model", "tiny", "--env", "arithmetic")


def conflicts(scan: Scan, *argv: str) -> list[Finding]:
    findings = examine([*ENOUGH, *argv], scan).findings
    return [finding for finding in findings if finding.code.startswith("M2")]


def test_defaults_agree(stand_ins: Scan) -> None:
    assert conflicts(stand_ins) == []


def test_a_refused_fact_names_both_sides_their_origin_and_a_fix(stand_ins: Scan) -> None:
    (finding,) = conflicts(stand_ins, "--max-staleness", "2")
    assert finding.code == "M201"
    assert finding.message == "trainer 'fsdp' refuses 'mixed-version-rollouts'"
    because = [str(source) for source in finding.because]
    assert "partial = True  (default)" in because
    assert "max_staleness = 2  (--max-staleness)" in because
    assert any("molt-plugin-fsdp 0.1.0" in source for source in because)
    assert finding.fix == "--no-partial, or drop trainer 'fsdp'"
    assert conflicts(stand_ins, "--max-staleness", "2", "--no-partial") == []


def test_an_unmet_need_names_who_needs_it(stand_ins: Scan) -> None:
    (finding,) = conflicts(stand_ins, "--engine", "transformers", "--engine.attention", "eager")
    assert finding.code == "M202"
    assert "trainer 'fsdp' needs 'sampled-logprobs'" in finding.message


def test_two_owners_of_one_thing_and_a_coined_word(stand_ins: Scan) -> None:
    findings = conflicts(stand_ins, "--estimator", "coiner")
    assert [finding.code for finding in findings] == ["M204", "M203"]
    assert "'grouped-sample', which is no fact" in findings[0].message
    assert "'optimizer-state'" in findings[1].message


def test_a_plugin_that_raises_is_named_and_the_other_checks_go_on(stand_ins: Scan) -> None:
    findings = conflicts(stand_ins, "--estimator", "ruleless", "--max-staleness", "1")
    assert [finding.code for finding in findings] == ["M205", "M201", "M205"]
    assert "acme-rl 0.1.0" in findings[0].fix


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        ((), {GROUPED_SAMPLES, STRICTLY_ON_POLICY}),
        (("--group-size", "1"), {STRICTLY_ON_POLICY}),
        (("--max-staleness", "1"), {GROUPED_SAMPLES, MIXED_VERSIONS}),
        (("--max-staleness", "1", "--no-partial"), {GROUPED_SAMPLES}),
    ],
)
def test_facts_of_run_options(stand_ins: Scan, argv: tuple[str, ...], facts: set[str]) -> None:
    assert set(core_facts(configure([*ENOUGH, *argv], stand_ins).run)) == facts


def test_core_facts_are_words_of_the_vocabulary_and_their_options_exist(stand_ins: Scan) -> None:
    run: Any = configure(ENOUGH, stand_ins).run
    assert CORE_FACTS.keys() <= VOCABULARY.keys()
    assert all(hasattr(run, option) for fact in CORE_FACTS.values() for option in fact.options)
