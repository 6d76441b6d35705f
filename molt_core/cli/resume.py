"""`molt resume RUN [--flags]`: go on where a run was ended or killed, in its folder, exactly once."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from molt_core.api.findings import error
from molt_core.errors import ConfigError
from molt_core.plan.changes import FREE_OPTIONS, FREE_SLOTS, changes, refused
from molt_core.plan.check import examine
from molt_core.plan.plan import Plan, freeze
from molt_core.plugins.scan import scan
from molt_core.report.run_folder import RunFolder

ITS_OWN = "M306"
"""Finding that the run folder exists: here it is meant to."""


def main(argv: Sequence[str]) -> int:
    """Exit code 0 when the run is done, or was done before.

    Raises:
        ConfigError: RUN is no run, or can't go on with these flags, data or checkpoints.
        PreflightError: another process works in the folder, or the machine lacks something.
        RunError, Interrupted: as `molt run`.
    """
    if not argv or argv[0].startswith("-"):
        if set(argv) & {"-h", "--help"}:
            print(_help(), end="")
            return 0
        raise ConfigError([error("M601", "no run is named", fix="molt resume runs/NAME [--flags]")])
    folder = RunFolder.open(Path(argv[0]))
    before = plan_of(folder)
    examined = examine([str(folder.config), *argv[1:]], scan())
    findings = [finding for finding in examined.findings if finding.code != ITS_OWN]
    if any(finding.level == "error" for finding in findings):
        raise ConfigError(findings)
    configuration = examined.configuration
    plan = freeze(examined.view)
    changed = changes(before, plan)
    if wrong := refused(changed, configuration.origins):
        raise ConfigError(wrong)

    from molt_core.launch.resuming import find_rest, is_over
    from molt_core.launch.train import train

    rest = find_rest(folder, changed)
    if is_over(rest, before.run_options(), configuration.run):
        print(f"this run is done: step {rest.step}; --steps {2 * rest.step} would train it further")
        return 0
    if "dry_run" in configuration.switches:
        print("\n".join(rest.notes))
        return 0
    return train(configuration, plan, findings, rest)


def plan_of(folder: RunFolder) -> Plan:
    """The plan that a run was started with, or last resumed with.

    Raises:
        ConfigError: it can't be read, or trains nothing.
    """
    plan = Plan.from_json(folder.plan.read_text(encoding="utf-8"))
    if "trainers" not in plan.parts:
        message = f"{str(folder.path)!r} is an evaluation: nothing was trained in it"
        raise ConfigError([error("M601", message)])
    return plan


def _help() -> str:
    options = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(FREE_OPTIONS))
    text = (
        f"Flags are those of molt run. May change: {options}, and what is chosen for "
        f"{', '.join(sorted(FREE_SLOTS))}. Any other change is refused."
    )
    return (
        "usage: molt resume RUN [--flag VALUE ...]\n\n"
        "Goes on in the run folder RUN from its last good checkpoint. Nothing is trained twice, nothing is lost.\n"
        f"{textwrap.fill(text, 100, break_on_hyphens=False)}\n"
        "--dry-run says where it would go on and changes nothing.\n"
    )
