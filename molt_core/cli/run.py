"""`molt run [FILE.toml ...] [--flags]`: check everything, then train."""

from __future__ import annotations

from collections.abc import Sequence

from molt_core.api.findings import Finding
from molt_core.config.help import help_text
from molt_core.config.parse import Configuration
from molt_core.config.purpose import TRAIN, Purpose
from molt_core.config.tables import to_toml
from molt_core.errors import ConfigError
from molt_core.plan.check import examine
from molt_core.plan.plan import Plan, freeze
from molt_core.plan.show import show_findings, show_plan
from molt_core.plugins.scan import scan


def main(argv: Sequence[str]) -> int:
    """Exit code 0 when the run is done.

    Raises:
        ConfigError: with every finding, before anything is started or written.
        PreflightError: the machine lacks something.
        RunError: the run could not go on.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    ready = checked(argv, TRAIN)
    if ready is None:
        return 0
    from molt_core.launch.train import train

    return train(*ready)


def checked(argv: Sequence[str], purpose: Purpose) -> tuple[Configuration, Plan, Sequence[Finding]] | None:
    """What to launch; None where the flags asked for a text instead, which is printed.

    Raises:
        ConfigError: with every finding.
    """
    installed = scan()
    if "--help" in argv or "-h" in argv:
        print(help_text(argv, installed, purpose.command, purpose), end="")
        return None
    examined = examine(argv, installed, purpose)
    if examined.has_errors:
        raise ConfigError(examined.findings)
    if "print_config" in examined.configuration.switches:
        print(to_toml(examined.configuration), end="")
        return None
    plan = freeze(examined.view)
    if "dry_run" in examined.configuration.switches:
        print(show_plan(plan))
        if examined.findings:
            print(f"\n{show_findings(examined.findings)}")
        return None
    return examined.configuration, plan, examined.findings
