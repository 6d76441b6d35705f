"""Second pass: the whole configuration, typed, or everything that is wrong with it.

    argv ─► files + flags ─► settings ─► choices ─► options of core and chosen plugins

`draft` goes as far as it can, so that checks of the plan can add their findings to those of
the configuration; `configure` is for callers that want a sound configuration or an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
from attrs import field, frozen

from molt_core.api.findings import Finding
from molt_core.api.plan_view import ChosenPart
from molt_core.api.run_options import RunOptions
from molt_core.config.argv import read_argv
from molt_core.config.choices import Choice, Choices, choose
from molt_core.config.files import read_file
from molt_core.config.purpose import EVAL, TRAIN, Purpose, as_evaluated, drop_unused
from molt_core.config.replaced import drop_replaced
from molt_core.config.settings import SLOT_OF_FLAG, Setting, strongest
from molt_core.config.structure import fields_of, structure
from molt_core.config.unknown import unknown
from molt_core.errors import ConfigError
from molt_core.plugins.scan import Scan

_NO_MODEL: Final = Setting("model", ("",), "", from_flag=False, layer=0)
"""Stand-in for the one required option, so that the others can be checked."""
_MISSING: Final = frozenset({"M123", "M130"})
"""Codes of what may stand in a file that could not be read."""


@frozen
class Configuration:
    """What the user asked for, typed."""

    run: RunOptions
    parts: Mapping[str, tuple[ChosenPart, ...]]
    """Slot to chosen plugins; `models` only where --model names a packaged one."""
    origins: Mapping[str, str]
    """Dotted key (`lr`, `estimator`, `estimator.kl_coef`) to the flag or `file:line` that set it."""
    switches: frozenset[str] = field(default=frozenset())
    """Of `help`, `print_config`, `dry_run`, those that were given."""


@frozen
class Draft:
    """A configuration that may have errors: wrong values are left at their defaults."""

    configuration: Configuration
    choices: Choices
    findings: tuple[Finding, ...]
    broken: frozenset[str]
    """Keys whose value is a stand-in; findings about them would mislead."""
    complete: bool
    """Every slot has its plugin with its options."""


def configure(argv: Sequence[str], scan: Scan, purpose: Purpose = TRAIN) -> Configuration:
    """Configuration of `molt run [FILE.toml ...] [--flags]` from the words after the command.

    Raises:
        ConfigError: with every finding.
    """
    made = draft(argv, scan, purpose)
    if any(finding.level == "error" for finding in made.findings):
        raise ConfigError(made.findings)
    return made.configuration


def draft(argv: Sequence[str], scan: Scan, purpose: Purpose = TRAIN) -> Draft:
    """As `configure`, but never raises ConfigError: findings come beside what could be made."""
    line = read_argv(argv)
    files = [read_file(name, layer) for layer, name in enumerate(line.files)]
    said = [setting for one in files for setting in one.settings]
    said += [attrs.evolve(setting, layer=len(files)) for setting in line.settings]
    used, unused = drop_unused(said, purpose)
    choices = choose(strongest(used), scan, purpose.unused_slots)
    kept, notes = drop_replaced(used, choices, scan)
    settings = {key: one for key, one in strongest(kept).items() if key not in choices.void}
    if purpose is EVAL:
        settings = as_evaluated(settings, own_tasks="eval_data" in choices.void)

    findings = [*line.findings, *(finding for one in files for finding in one.findings)]
    findings += [*unused, *choices.findings, *notes]
    findings += unknown(settings.values(), choices, scan)
    own = _of("", RunOptions, settings.values())
    run = structure(RunOptions, own)
    options = run.options or structure(RunOptions, [*own, _NO_MODEL]).options
    broken = set(run.broken) | choices.failed
    findings += run.findings
    parts: dict[str, tuple[ChosenPart, ...]] = {}
    complete = not choices.failed
    for slot, chosen in choices.chosen.items():
        built = [_part(choice, settings.values(), findings, broken) for choice in chosen]
        parts[slot] = tuple(part for part in built if part is not None)
        complete = complete and None not in built
    if any(one.findings for one in files):
        findings = [finding for finding in findings if finding.code not in _MISSING]
    configuration = Configuration(
        run=options, parts=parts, origins=_origins(settings, choices, broken), switches=line.switches
    )
    return Draft(configuration, choices, tuple(findings), frozenset(broken), complete)


def _of(owner: str, cls: type, settings: Iterable[Setting]) -> list[Setting]:
    names = {attribute.name for attribute in fields_of(cls)}
    return [setting for setting in settings if setting.owner == owner and setting.knob in names]


def _part(
    choice: Choice, settings: Iterable[Setting], findings: list[Finding], broken: set[str]
) -> ChosenPart | None:
    spec = choice.spec
    own = _of(choice.owner, spec.options, settings)
    made = structure(spec.options, own, owner=choice.owner, who=f"{spec.flag} {spec.name!r}")
    findings += made.findings
    broken |= {f"{choice.owner}.{name}" for name in made.broken}
    if made.options is None:
        return None
    return ChosenPart(
        spec=spec, options=made.options, dist=choice.candidate.dist, version=choice.candidate.version
    )


def _origins(settings: Mapping[str, Setting], choices: Choices, broken: set[str]) -> dict[str, str]:
    origins = {
        key: setting.origin
        for key, setting in settings.items()
        if key not in broken and not setting.is_default
    }
    for chosen in choices.chosen.values():
        for choice in chosen:
            # an environment that --data implied has no setting of its own
            if choice.origin != "default" and choice.spec.flag in SLOT_OF_FLAG:
                origins[choice.spec.flag] = choice.origin
    return origins
