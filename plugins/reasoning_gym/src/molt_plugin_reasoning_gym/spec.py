"""Spec and options of the environment `reasoning-gym`. Does not import reasoning_gym, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Final, Literal

from molt_core.api.facts import DATA_ROWS, TASK_SOURCE, Facts
from molt_core.api.findings import Finding, error
from molt_core.api.options import json_object, option, options
from molt_core.api.spec import EnvironmentSpec

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

PACKAGE: Final = "reasoning-gym"
CODE: Final = "RGYM1"
INSTALL: Final = "pip install 'reasoning-gym>=0.1.25,<0.2'"


@options
class ReasoningGymOptions:
    task: str = option(help="data set of reasoning-gym by name, e.g. chain_sum")
    config: str = option(
        "{}", help='its configuration as a JSON object, e.g. {"max_terms": 3}', check=json_object
    )
    answer: Literal["tag", "text"] = option(
        "tag", help="what is graded: the last <answer>...</answer> of the reply, or all of it"
    )
    system: str = option(
        "Solve the problem. Give your final answer between <answer> and </answer>.",
        help="system message; empty: none, and chat templates may then insert their own",
    )


def package_is_installed(_view: PlanView) -> Iterator[Finding]:
    try:
        metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        yield error(CODE, f"environment 'reasoning-gym' needs {PACKAGE}, which is not installed", fix=INSTALL)


REASONING_GYM: Final = EnvironmentSpec(
    name="reasoning-gym",
    summary="procedural reasoning tasks by name, graded by their own verifiers",
    api=1,
    factory="molt_plugin_reasoning_gym.environment:ReasoningGym",
    options=ReasoningGymOptions,
    makes_tasks=True,
    facts=lambda _options: Facts(provides={TASK_SOURCE}, refuses={DATA_ROWS}),
    rules=(package_is_installed,),
)
