"""Facts of the core and of the chosen plugins, and where they contradict each other.

    provides  true once this plugin is in the plan      needs    someone must provide it
    refuses   nobody may provide it                     owns     at most one owner

The core states facts that follow from run options. Names of plugins play no part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from molt_core.api.facts import (
    DATA_ROWS,
    GROUPED_SAMPLES,
    MIXED_VERSIONS,
    STRICTLY_ON_POLICY,
    TASK_SOURCE,
    TEACHER,
    VOCABULARY,
    Facts,
)
from molt_core.api.findings import Finding, Source, error
from molt_core.api.plan_view import ChosenPart, PlanView
from molt_core.api.run_options import RunOptions
from molt_core.api.spec import EnvironmentSpec

CORE: Final = "molt-core"


@frozen
class CoreFact:
    """A fact that follows from run options."""

    options: tuple[str, ...]
    so: str
    """How to make it true."""
    not_so: str
    """How to make it false."""


CORE_FACTS: Final = {
    GROUPED_SAMPLES: CoreFact(("group_size",), "--group-size 8", "--group-size 1"),
    MIXED_VERSIONS: CoreFact(("partial", "max_staleness"), "--partial --max-staleness 1", "--no-partial"),
    STRICTLY_ON_POLICY: CoreFact(("max_staleness",), "--max-staleness 0", "--max-staleness 1"),
    DATA_ROWS: CoreFact(("data",), "--data FILE.jsonl", "leave --data out"),
    TEACHER: CoreFact(("reference",), "--reference MODEL", "leave --reference out"),
}


@frozen
class Stated:
    part: ChosenPart
    facts: Facts

    @property
    def name(self) -> str:
        return f"{self.part.spec.flag} {self.part.spec.name!r}"


def core_facts(run: RunOptions) -> Iterator[str]:
    """Facts that follow from run options alone."""
    if run.group_size > 1:
        yield GROUPED_SAMPLES
    if run.partial and run.max_staleness > 0:
        yield MIXED_VERSIONS
    if run.max_staleness == 0:
        yield STRICTLY_ON_POLICY
    if run.data is not None:
        yield DATA_ROWS
    if run.reference is not None:
        yield TEACHER


def state(parts: Mapping[str, tuple[ChosenPart, ...]]) -> tuple[tuple[Stated, ...], tuple[Finding, ...]]:
    """Ask every chosen plugin for its facts; one that can't answer, or coins a word, is an error."""
    stated: list[Stated] = []
    findings: list[Finding] = []
    for part in (part for chosen in parts.values() for part in chosen):
        try:
            facts = part.spec.facts(part.options)
        except Exception as problem:  # noqa: BLE001 - isolation point: a plugin's own function
            message = (
                f"the facts of {part.spec.flag} {part.spec.name!r} raised {type(problem).__name__}: {problem}"
            )
            findings.append(error("M205", message, fix=f"report it to the authors of {part.owner}"))
            continue
        stated.append(Stated(part, facts))
        words = facts.provides | facts.needs | facts.refuses
        for word in sorted(words - VOCABULARY.keys()):
            if not word.startswith("x-"):
                message = f"{stated[-1].name} of {part.owner} speaks of {word!r}, which is no fact"
                fix = f"facts are {', '.join(VOCABULARY)}; your own is written x-DISTRIBUTION/FACT"
                findings.append(error("M204", message, fix=fix))
    return tuple(stated), tuple(findings)


def provided(run: RunOptions, stated: tuple[Stated, ...]) -> dict[str, tuple[str, ...]]:
    """Every fact that holds, with the names of those who provide it."""
    providers: dict[str, list[str]] = {fact: [CORE] for fact in core_facts(run)}
    for one in stated:
        spec = one.part.spec
        makes_tasks = isinstance(spec, EnvironmentSpec) and spec.makes_tasks and run.data is None
        for fact in sorted(one.facts.provides | ({TASK_SOURCE} if makes_tasks else set())):
            providers.setdefault(fact, []).append(one.name)
    return {fact: tuple(names) for fact, names in sorted(providers.items())}


def conflicts(view: PlanView, stated: tuple[Stated, ...]) -> Iterator[Finding]:
    """Unmet needs, refused facts and double owners, each with both sides and a way out."""
    for one in stated:
        why = Source(one.part.spec.summary, one.part.owner)
        for fact in sorted(one.facts.refuses & view.facts.keys()):
            core = CORE_FACTS.get(fact)
            fix = f"{core.not_so}, or drop {one.name}" if core else f"drop {one.name} or what provides it"
            because = (*_providers(fact, view, stated), why, _meaning(fact))
            yield error("M201", f"{one.name} refuses {fact!r}", *because, fix=fix)
        for fact in sorted(one.facts.needs - view.facts.keys()):
            core = CORE_FACTS.get(fact)
            options = [view.source(option) for option in core.options] if core else []
            fix = (
                f"{core.so}, or drop {one.name}"
                if core
                else f"choose a plugin that provides it, or drop {one.name}"
            )
            message = f"{one.name} needs {fact!r}, which nothing in this run provides"
            yield error("M202", message, *options, why, _meaning(fact), fix=fix)
    owners: dict[str, Stated] = {}
    for one in stated:
        for thing in sorted(one.facts.owns):
            first = owners.setdefault(thing, one)
            if first is not one:
                sides = (Source(side.name, side.part.owner) for side in (first, one))
                message = f"{first.name} and {one.name} both want to own {thing!r}"
                yield error("M203", message, *sides, fix="drop one of the two")


def _providers(fact: str, view: PlanView, stated: tuple[Stated, ...]) -> Iterator[Source]:
    if CORE in view.facts[fact]:
        yield from (view.source(option) for option in CORE_FACTS[fact].options)
    for one in stated:
        if fact in one.facts.provides:
            yield Source(f"{one.name} provides it", one.part.owner)


def _meaning(fact: str) -> Source:
    return Source(f"{fact}: {VOCABULARY.get(fact, 'a fact of its own package')}")
