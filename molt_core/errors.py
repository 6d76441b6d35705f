"""Every error that reaches a user, with the exit code it ends the command with.

A message says what, where, got, wanted and what to do. A `ValueError` never reaches a
user bare: the place that knows the flag or the file turns it into one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from molt_core.api.findings import Finding


class MoltError(Exception):
    """Root of all errors that the command line prints without a traceback."""

    exit_code: ClassVar[int] = 4


class ConfigError(MoltError):
    """What the user asked for can't be: wrong flags, files, plugins or combinations.

    Carries every finding, so that all mistakes are shown at once.
    """

    exit_code = 2

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.message for finding in self.findings))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[Sequence[Finding]]]:
        # an exception is pickled with its message as the only argument
        return type(self), (self.findings,)


class PreflightError(MoltError):
    """The machine lacks something: a package, a version, memory, CPUs, a writable folder."""

    exit_code = 3


class RunError(MoltError):
    """The run started and could not go on. `reason` is a short word for the ledger."""

    exit_code = 4

    def __init__(self, message: str, *, reason: str = "run_error") -> None:
        self.reason = reason
        super().__init__(message)


class ActorLost(RunError):
    """A process of the run died, does not answer, or can't do its work any more. `actor` is its name."""

    def __init__(self, message: str, *, actor: str = "", reason: str = "actor_died") -> None:
        self.actor = actor
        super().__init__(message, reason=reason)


class ObjectLost(RunError):
    """What a worker has left in the store is gone, with the machine or the process that kept it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="object_lost")


class Interrupted(MoltError):
    """The user or a scheduler asked the run to stop; what was computed is saved."""

    exit_code = 130


def first_cause(error: BaseException) -> BaseException:
    """The first leaf of nested exception groups: what went wrong first, without its followers."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
