"""`molt check [FILE.toml ...] [--flags]`: what would run, and all that is wrong with it. Starts nothing."""

from __future__ import annotations

from collections.abc import Sequence

from molt_core.config.help import help_text
from molt_core.config.tables import to_toml
from molt_core.errors import ConfigError
from molt_core.plan.check import examine
from molt_core.plan.show import show_findings, show_parts
from molt_core.plugins.scan import scan


def main(argv: Sequence[str]) -> int:
    """Exit code 0.

    Raises:
        ConfigError: with every finding, if one is an error.
    """
    installed = scan()
    if "--help" in argv or "-h" in argv:
        print(help_text(argv, installed, "molt check"), end="")
        return 0
    examined = examine(argv, installed)
    if "print_config" in examined.configuration.switches and not examined.has_errors:
        print(to_toml(examined.configuration), end="")
        return 0
    print(show_parts(examined.view))
    if examined.has_errors:
        raise ConfigError(examined.findings)
    print()
    print(show_findings(examined.findings))
    return 0
