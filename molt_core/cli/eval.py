"""`molt eval [FILE.toml ...] [--flags]`: every task of a data set or environment, answered k times and graded.

Takes the files of `molt run`; what is for training is left out, with a note, and need not be installed.
"""

from __future__ import annotations

from collections.abc import Sequence

from molt_core.cli.run import checked
from molt_core.config.purpose import EVAL


def main(argv: Sequence[str]) -> int:
    """Exit code 0 when every episode has ended, failed ones included.

    Raises:
        ConfigError: with every finding, before anything is started or written.
        PreflightError: the machine lacks something.
        RunError: an engine or worker is gone, or not one episode could be graded.
        Interrupted: Ctrl-C or SIGTERM; the episodes so far are written.
    """
    ready = checked(argv, EVAL)
    if ready is None:
        return 0
    from molt_core.launch.evaluate import evaluate_model

    return evaluate_model(*ready)
