"""An agent or environment in a file of the user, `--agent ./solver.py:Solver`, as if it were a plugin.

In goes the text of the choice; out come the spec that a package would have brought, and who
offers it. What the spec has to say is read from the file's syntax; nothing is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from molt_core.api import python_file
from molt_core.api.findings import Finding, error
from molt_core.api.python_file import Definitions
from molt_core.api.spec import AgentSpec, EnvironmentSpec, Spec
from molt_core.errors import ConfigError
from molt_core.plugins.scan import Candidate

SLOTS_FROM_FILES: Final = frozenset({AgentSpec.slot, EnvironmentSpec.slot})
DIST: Final = "file"
"""Stands where a plugin has its distribution; the file's path is the version."""


def from_file(slot: str, text: str) -> tuple[Spec, Candidate] | None:
    """Spec and candidate of `FILE.py:NAME`; None where `text` names a plugin.

    Raises:
        ConfigError: the file or what it defines is not fit (one finding).
    """
    parts = python_file.split(text) if slot in SLOTS_FROM_FILES else None
    if parts is None:
        return None
    path, name = parts
    path = path.expanduser()
    try:
        defined = python_file.definitions(path)
    except ValueError as failure:
        raise ConfigError([error("M117", str(failure), fix="FILE.py:NAME")]) from failure
    if name not in defined.names:
        what = f"defines no {name!r}" if name else "is named without what it defines"
        raise ConfigError([error("M117", f"{str(path)!r} {what}", fix=defined.missing(name))])
    factory = python_file.absolute(text)
    spec = (_agent if slot == AgentSpec.slot else _environment)(path, name, defined, factory)
    return spec, Candidate(slot, name, DIST, str(path), factory)


def _agent(path: Path, name: str, defined: Definitions, factory: str) -> AgentSpec:
    methods = defined.methods.get(name)
    if methods is not None and "run" not in methods:
        raise ConfigError([_lacks(path, name, "run(task, session)")])
    # what it does not grade abstains, so it needs no environment
    return AgentSpec(name=name, summary=f"{name} of {path}", api=1, factory=factory, grades=True)


def _environment(path: Path, name: str, defined: Definitions, factory: str) -> EnvironmentSpec:
    methods = defined.methods.get(name, frozenset())
    multi_turn = "step" in methods
    wanted = {"reset", "step", "close"} if multi_turn else {"prompt", "score"}
    if missing := sorted(wanted - methods):
        either = "reset, step and close, or prompt and score"
        raise ConfigError([_lacks(path, name, f"{', '.join(missing)} (an environment has {either})")])
    return EnvironmentSpec(
        name=name, summary=f"{name} of {path}", api=1, factory=factory,
        makes_tasks="tasks" in methods, multi_turn=multi_turn,
    )  # fmt: skip


def _lacks(path: Path, name: str, what: str) -> Finding:
    fix = "write it in that class, or in a base class in the same file"
    return error("M117", f"{name!r} in {str(path)!r} is no class with {what}", fix=fix)
