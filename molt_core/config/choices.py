"""First pass: which plugin is chosen for which slot, and which statements that makes void.

In: settings and a scan. Out: specs of the chosen plugins, imported here and nowhere else
before launch. Knobs of plugins are not looked at: `molt_core.config.parse` does, once it is
known whose they are.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from attrs import field, frozen

from molt_core.api.findings import Finding, Source, error
from molt_core.api.spec import SLOTS, AgentSpec, EnvironmentSpec, GatewaySpec, ModelSpec, Spec
from molt_core.config.from_file import from_file
from molt_core.config.settings import HOOK_FLAG, Setting, flag_of, owner_of_knobs
from molt_core.errors import ConfigError
from molt_core.plugins.load import load_spec
from molt_core.plugins.match import matching
from molt_core.plugins.names import nearest, owner_of
from molt_core.plugins.resolve import resolve
from molt_core.plugins.scan import Candidate, Scan

DEFAULTS: Final = {
    "estimators": "reinforce++", "losses": "ppo", "gateways": "http", "engines": "vllm", "trainers": "fsdp",
    "executors": "ray",
}  # fmt: skip
"""What an unmentioned slot holds; a gateway only where something talks to it."""
DATA_KEYS: Final = ("data", "eval_data")


@frozen
class Choice:
    """A chosen plugin, and where it was chosen."""

    spec: Spec
    candidate: Candidate
    origin: str

    @property
    def owner(self) -> str:
        """Prefix of its knobs' keys: `estimator`, `hook.tensorboard`."""
        return owner_of_knobs(self.spec)


@frozen
class Choices:
    chosen: Mapping[str, tuple[Choice, ...]]
    """Slot to plugins; a slot whose plugin could not be had is missing."""
    failed: frozenset[str]
    """Flags of those slots, and `data` where it means nothing: what rests on them can't be judged."""
    void: frozenset[str] = field(default=frozenset())
    """`data` and `eval_data` where they name the chosen environment: it makes the tasks itself."""
    findings: tuple[Finding, ...] = ()

    def of(self, owner: str) -> Choice | None:
        """The chosen plugin whose knobs start with `owner`."""
        return next((one for many in self.chosen.values() for one in many if one.owner == owner), None)


def choose(settings: Mapping[str, Setting], scan: Scan, unused_slots: Container[str] = ()) -> Choices:
    """Resolve and load every choice but those of unused slots; all failures are reported together."""
    chosen: dict[str, tuple[Choice, ...]] = {}
    failed: set[str] = set()
    findings: list[Finding] = []
    for slot, kind in SLOTS.items():
        if slot in unused_slots:
            continue
        if slot == GatewaySpec.slot and not _needs_gateway(chosen):
            failed |= {kind.flag} if failed & {AgentSpec.flag, EnvironmentSpec.flag} else set()
            continue
        picked, wrong = _slot(slot, kind.flag, settings, scan)
        findings += wrong
        if wrong:
            failed.add(kind.flag)
        elif picked:
            chosen[slot] = picked
    environment = next(iter(chosen.get(EnvironmentSpec.slot, ())), None)
    void = _void_data(settings, environment, scan, findings, failed)
    return Choices(chosen, frozenset(failed), void, tuple(findings))


def _slot(
    slot: str, flag: str, settings: Mapping[str, Setting], scan: Scan
) -> tuple[tuple[Choice, ...], list[Finding]]:
    chosen: list[Choice] = []
    findings: list[Finding] = []
    for name, origin in _wanted(slot, flag, settings, scan, findings):
        try:
            choice = _choice(slot, name, origin, scan)
        except ConfigError as problem:
            findings += [_chosen_at(finding, flag, name, origin) for finding in problem.findings]
            continue
        twin = next((earlier for earlier in chosen if earlier.owner == choice.owner), None)
        if twin is None:
            chosen.append(choice)
        elif twin.candidate != choice.candidate:
            both = f"{twin.candidate.qualified} and {choice.candidate.qualified}"
            message = f"{both} would share the options [{choice.owner}]"
            findings.append(
                error("M126", message, Source(f"{flag} {name}", origin), fix="choose one of them")
            )
    return tuple(sorted(chosen, key=lambda choice: choice.owner)), findings


def _choice(slot: str, name: str, origin: str, scan: Scan) -> Choice:
    if (found := from_file(slot, name)) is not None:
        return Choice(*found, origin)
    candidate = resolve(scan, slot, name)
    return Choice(load_spec(candidate), candidate, origin)


def _needs_gateway(chosen: Mapping[str, tuple[Choice, ...]]) -> bool:
    """An agent or an environment of several turns talks to the policy in a session."""
    specs = [choice.spec for choice in chosen.get(EnvironmentSpec.slot, ())]
    several = any(isinstance(spec, EnvironmentSpec) and spec.multi_turn for spec in specs)
    return AgentSpec.slot in chosen or several


def _wanted(
    slot: str, flag: str, settings: Mapping[str, Setting], scan: Scan, findings: list[Finding]
) -> Iterator[tuple[str, str]]:
    """Names to resolve, each with its origin."""
    setting = settings.get(flag)
    if setting is None:
        if slot == EnvironmentSpec.slot:
            yield from _environment(settings, scan, findings)
        elif slot in DEFAULTS:
            yield DEFAULTS[slot], "default"
        return
    # a list of values is meant for hooks only; of other slots the last flag wins
    for name in setting.values if flag == HOOK_FLAG else setting.values[-1:]:
        if slot == ModelSpec.slot and not isinstance(name, str):
            continue  # `model` is also an option of the core, and reported as such
        if not isinstance(name, str) or not name:
            wanted = "a list of names" if flag == HOOK_FLAG else "a name"
            fix = f"molt plugins list --slot {slot}"
            findings.append(error("M126", f"{setting}: must be {wanted}", fix=fix))
        elif slot != ModelSpec.slot or is_packaged_model(scan, name):
            yield name, setting.origin


def is_packaged_model(scan: Scan, name: str) -> bool:
    """Whether `--model NAME` means a plugin of slot `models`.

    A folder of that name with a model in it goes first. A name without a slash that is neither
    folder nor installed is still taken for a plugin's, so that the error can name the nearest one;
    `organisation/name` is left to the Hugging Face hub.
    """
    if name.startswith((".", "/", "~")) or os.path.isfile(os.path.join(name, "config.json")):
        return False
    return bool(matching(scan, ModelSpec.slot, name)) or ("/" not in name and not os.path.exists(name))


def _environment(
    settings: Mapping[str, Setting], scan: Scan, findings: list[Finding]
) -> Iterator[tuple[str, str]]:
    """`--data NAME` stands for `--env NAME` where NAME is an environment that makes its own tasks."""
    data = settings.get("data")
    names = sorted({candidate.name for candidate in scan.of(EnvironmentSpec.slot)})
    if data is not None and _names_environment(data, scan):
        yield data.value, str(data) if data.from_flag else data.origin
        return
    if AgentSpec.flag in settings:
        return
    meant = (
        nearest(str(data.value), names) if data is not None and not os.path.exists(str(data.value)) else None
    )
    findings.append(
        error(
            "M130",
            "no environment is chosen: it makes prompts of tasks and grades the replies",
            Source(f"installed: {', '.join(names) or 'none'}", "slot envs"),
            fix=f"did you mean --data {meant}?"
            if meant
            else "--env NAME, --data NAME of one that makes tasks, or --agent NAME",
        )
    )


def _names_environment(data: Setting, scan: Scan) -> bool:
    """Whether the data is the name of an environment, installed or known; a file of that name goes first."""
    name = data.value
    if not isinstance(name, str) or os.path.exists(name):
        return False
    slot = EnvironmentSpec.slot
    return bool(matching(scan, slot, name)) or owner_of(slot, name) is not None


def _void_data(
    settings: Mapping[str, Setting],
    environment: Choice | None,
    scan: Scan,
    findings: list[Finding],
    failed: set[str],
) -> frozenset[str]:
    named = [key for key in DATA_KEYS if key in settings and _names_environment(settings[key], scan)]
    for key in named:
        setting = settings[key]
        if environment is None:
            failed.add(key)  # why there is no environment has been said
        elif environment.candidate not in matching(scan, EnvironmentSpec.slot, setting.value):
            failed.add(key)
            message = f"{setting}: is an environment, but the run uses environment {environment.spec.name!r}"
            because = Source(f"env {environment.spec.name}", environment.origin)
            findings.append(error("M127", message, because, fix="name one of them"))
        elif not _makes_tasks(environment.spec):
            failed.add(key)
            message = f"{setting}: environment {environment.spec.name!r} makes no tasks of its own"
            findings.append(error("M127", message, fix=f"{flag_of(key)} FILE.jsonl"))
    return frozenset(named)


def _makes_tasks(spec: Any) -> bool:
    return isinstance(spec, EnvironmentSpec) and spec.makes_tasks


def _chosen_at(finding: Finding, flag: str, name: str, origin: str) -> Finding:
    """Add to a kernel's finding where the user asked for it."""
    because = Source(f"{flag} {name}", origin if origin != "default" else f"default of --{flag}")
    return Finding(finding.level, finding.code, finding.message, (because, *finding.because), finding.fix)
