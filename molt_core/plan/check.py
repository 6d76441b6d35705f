"""Everything that can be known about a run before it starts. What `molt check` does, and `molt run` does first.

Configuration and plan are reported together. Imports no torch, ray, vllm or transformers; starts nothing,
writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import frozen

from molt_core.api.findings import Finding, error
from molt_core.api.plan_view import ModelFacts, PlanView
from molt_core.api.spec import ModelSpec, Rule
from molt_core.config.parse import Configuration, Draft, draft
from molt_core.config.purpose import TRAIN, Purpose
from molt_core.plan.data_findings import data_findings
from molt_core.plan.facts import conflicts, provided, state
from molt_core.plan.model_facts import model_facts
from molt_core.plan.rules import CORE_RULES, EVAL_RULES
from molt_core.plugins.scan import Scan

LEVELS: Final = ("error", "warning", "note")


@frozen
class Examined:
    """A run as far as it can be made out, with all findings, errors first."""

    configuration: Configuration
    view: PlanView
    findings: tuple[Finding, ...]

    @property
    def has_errors(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)


def examine(argv: Sequence[str], scan: Scan, purpose: Purpose = TRAIN) -> Examined:
    """Read flags and files, resolve plugins, check the plan: all findings at once. Raises no ConfigError."""
    made = draft(argv, scan, purpose)
    view, findings = _checked(made, CORE_RULES if purpose is TRAIN else EVAL_RULES)
    return Examined(made.configuration, view, _ordered([*made.findings, *scan.findings, *findings]))


def _checked(made: Draft, rules: Sequence[Rule]) -> tuple[PlanView, list[Finding]]:
    run, parts, origins = made.configuration.run, made.configuration.parts, made.configuration.origins
    findings: list[Finding] = []
    model = ModelFacts(source="unknown")
    if "model" not in made.broken:
        packaged = next(iter(parts.get(ModelSpec.slot, ())), None)
        model, wrong = model_facts(run, packaged, origins.get("model", "default"))
        findings += wrong
    stated, wrong = state(parts)
    findings += wrong
    view = PlanView(
        run=run, parts=parts, model=model, facts=provided(run, stated), origins=origins,
        top_logprobs=max((one.facts.top_logprobs for one in stated), default=0),
    )  # fmt: skip
    if made.complete:
        findings += conflicts(view, stated)
    findings += _plugin_rules(view)
    for rule in (*rules, data_findings):
        findings += rule(view)
    return view, [finding for finding in findings if not _rests_on(finding, made.broken)]


def _plugin_rules(view: PlanView) -> Iterator[Finding]:
    for part in (part for chosen in view.parts.values() for part in chosen):
        for rule in part.spec.rules:
            try:
                yield from tuple(rule(view))
            except Exception as problem:  # noqa: BLE001 - isolation point: a plugin's own function
                name = getattr(rule, "__name__", "rule")
                message = f"{name} of {part.owner} raised {type(problem).__name__}: {problem}"
                yield error("M205", message, fix=f"report it to the authors of {part.dist}")


def _rests_on(finding: Finding, broken: frozenset[str]) -> bool:
    """Whether a finding speaks of an option whose value is only a stand-in for a wrong one."""
    return any(source.what.partition(" = ")[0] in broken for source in finding.because)


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: LEVELS.index(finding.level)))
