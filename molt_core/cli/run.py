"""`molt run [FILE.toml ...] [--flags]`: check everything, then train."""

from __future__ import annotations

from collections.abc import Sequence

from molt_core.config.help import help_text
from molt_core.config.tables import to_toml
from molt_core.errors import ConfigError
from molt_core.plan.check import examine
from molt_core.plan.plan import freeze
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
    installed = scan()
    if "--help" in argv or "-h" in argv:
        print(help_text(argv, installed, "molt run"), end="")
        return 0
    examined = examine(argv, installed)
    if examined.has_errors:
        raise ConfigError(examined.findings)
    if "print_config" in examined.configuration.switches:
        print(to_toml(examined.configuration), end="")
        return 0
    plan = freeze(examined.view)
    if "dry_run" in examined.configuration.switches:
        print(show_plan(plan))
        if examined.findings:
            print(f"\n{show_findings(examined.findings)}")
        return 0
    from molt_core.launch.train import train

    return train(examined.configuration, plan, examined.findings)
