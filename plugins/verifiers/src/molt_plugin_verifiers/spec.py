"""Specs of environment and agent `verifiers`: the one makes the tasks, the other does them.

A run names both. Which verifiers environment it is, and in which Python, is said to the environment; its
rows carry it to the agent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from molt_core.api.facts import DATA_ROWS, TASK_SOURCE, Facts
from molt_core.api.findings import Finding, error
from molt_core.api.options import NoOptions, json_object, option, options
from molt_core.api.spec import AgentSpec, EnvironmentSpec

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

CODE: Final = "VERIFIERS1"
NAME: Final = "verifiers"


def absolute(path: Any) -> Any:
    """Workers have other working directories. A link stays one: that of an environment says which it is."""
    return os.path.abspath(os.path.expanduser(path)) if isinstance(path, str) else path


def is_program(path: str) -> str | None:
    fits = os.path.isfile(path) and os.access(path, os.X_OK)
    return None if fits else f"must be a Python to run, as venv/bin/python; {path} is none"


@options
class VerifiersOptions:
    id: str = option(help="environment of verifiers: its installed package's name, e.g. wordle")
    args: str = option("{}", help="arguments of its load_environment, a JSON object", check=json_object)
    python: str = option(
        sys.executable, help="Python that has verifiers and the environment; default: this one",
        convert=absolute, check=is_program,
    )  # fmt: skip
    start_timeout_s: float = option(300.0, help="seconds that loading the environment may take", gt=0)


def both_are_chosen(view: PlanView) -> Iterator[Finding]:
    """Rows name a program to run, so they come from our own environment and from nowhere else."""
    chosen = {slot: [part.spec.name for part in view.parts.get(slot, ())] for slot in ("agents", "envs")}
    for slot, flag in (("agents", "--agent"), ("envs", "--env")):
        if chosen[slot] != [NAME]:
            message = "the verifiers agent and environment go together: the one does what the other makes"
            yield error(CODE, message, fix=f"{flag} verifiers")
    if view.run.eval_data is not None:
        yield error(
            CODE, "the verifiers agent does tasks of its environment only", view.source("eval_data"),
            fix="leave --eval-data out",
        )  # fmt: skip


ENVIRONMENT: Final = EnvironmentSpec(
    name=NAME,
    summary="tasks of a verifiers environment, for the agent of that name",
    api=1,
    factory="molt_plugin_verifiers.tasks:VerifiersTasks",
    options=VerifiersOptions,
    makes_tasks=True,
    facts=lambda _options: Facts(provides={TASK_SOURCE}, refuses={DATA_ROWS}),
    rules=(both_are_chosen,),
)
AGENT: Final = AgentSpec(
    name=NAME,
    summary="runs a verifiers environment, in a Python of its own; it grades itself",
    api=1,
    factory="molt_plugin_verifiers.agent:VerifiersAgent",
    options=NoOptions,
    grades=True,
    rules=(both_are_chosen,),
)
