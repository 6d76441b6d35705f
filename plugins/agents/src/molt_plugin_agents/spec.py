"""Spec and options of the agent `command`, and what is checked before launch. Imports nothing heavy."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from molt_core.api.findings import Finding, Source, error
from molt_core.api.options import option, options
from molt_core.api.spec import AgentSpec
from molt_plugin_agents.recipe import NAMES, PLACEHOLDER, Recipe, load_recipe

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

CODE: Final = "AGENTS1"
"""The command can't be started."""
CODE_TIME: Final = "AGENTS2"
CODE_LENGTH: Final = "AGENTS3"


def from_here(value: Any) -> Any:
    """`{cwd}` becomes the folder that the command `molt` runs in, because workers run elsewhere."""
    if isinstance(value, tuple):
        return tuple(map(from_here, value))
    return value.replace("{cwd}", os.getcwd()) if isinstance(value, str) else value


def recipe_path(name: Any) -> Any:
    return str(Path(name).absolute()) if isinstance(name, str) and name.endswith(".toml") else name


def known_recipe(name: str) -> str | None:
    if name not in NAMES and not name.endswith(".toml"):
        return f"must be one of {', '.join(NAMES)}, or FILE.toml"
    try:
        load_recipe(name)
    except ValueError as wrong:
        return str(wrong)
    return None


def known_variables(env: tuple[str, ...]) -> str | None:
    wrong = [one for one in env if not one.partition("=")[0].isidentifier()]
    return f"must be NAME=VALUE, or NAME alone; {wrong[0]!r} is neither" if wrong else None


@options
class CommandOptions:
    recipe: str = option(
        "plain", help=f"variables, files and command of a harness: {', '.join(NAMES)}, or FILE.toml",
        convert=recipe_path, check=known_recipe,
    )  # fmt: skip
    argv: tuple[str, ...] = option(
        (),
        help="the command, with placeholders as {prompt}; one text alone is split as by a shell; default: recipe's",
        convert=from_here,
    )  # fmt: skip
    stdin: str = option("", help="its standard input, e.g. {prompt}; default: none", convert=from_here)
    env: tuple[str, ...] = option(
        (),
        help="further variables: NAME=VALUE, or NAME for the worker's own",
        convert=from_here,
        check=known_variables,
    )
    workspace: str | None = option(
        None, help="folder to copy as its working directory, e.g. /repos/{repo}; default: an empty one",
        convert=from_here,
    )  # fmt: skip
    answer: str | None = option(
        None, help="text that is graded: stdout, reply (the policy's last), or a file; default: recipe's",
        convert=from_here,
    )  # fmt: skip
    timeout_s: float | None = option(
        None, help="seconds until it gets SIGTERM; default: 0.9 of the rollout's time, less the grace", gt=0
    )
    grace_s: float = option(10.0, help="seconds between SIGTERM and SIGKILL", ge=0)
    max_output: int = option(65536, help="bytes that are kept of the ends of stdout and stderr", ge=1)
    on_exit_code: Literal["grade", "fail"] = option(
        "grade", help="what an exit code other than 0 means: graded as it stands, or the rollout failed"
    )


def command_of(given: CommandOptions, recipe: Recipe) -> tuple[str, ...]:
    argv = given.argv or recipe.argv
    return tuple(shlex.split(argv[0])) if len(argv) == 1 else argv


def deadline_s(given: CommandOptions, rollout_timeout_s: float) -> float:
    """Seconds that the command has, so that time to end and grade it remains within the rollout's."""
    most = 0.9 * rollout_timeout_s - given.grace_s
    return min(given.timeout_s or most, most)


def command_can_start(view: PlanView) -> Iterator[Finding]:
    """There is a command, its program is installed, and its workspace is there."""
    (part,) = view.parts["agents"]
    recipe = load_recipe(part.options.recipe)
    because = view.source("agent.argv" if part.options.argv else "agent.recipe")
    try:
        program = command_of(part.options, recipe)[0]
    except (IndexError, ValueError) as wrong:
        reason = f": {wrong}" if isinstance(wrong, ValueError) else ""
        yield error(
            CODE, f"there is no command to run{reason}", because, fix="--agent.argv 'tool --task {prompt}'"
        )
        return
    given = dict(one.split("=", 1) for one in part.options.env if "=" in one)
    if not PLACEHOLDER.search(program):
        if os.path.dirname(program) and not os.path.isabs(program):
            fix = f"--agent.argv '{{cwd}}/{program} …'"
            yield error(
                CODE, f"{program!r} would be looked for in the rollout's own folder", because, fix=fix
            )
        elif shutil.which(program, path=given.get("PATH")) is None:
            message = f"{program!r} is not installed here, or is no program"
            yield error(CODE, message, because, fix=recipe.install or "name it with its whole path")
    workspace = part.options.workspace
    if workspace and not PLACEHOLDER.search(workspace) and not Path(workspace).is_dir():
        yield error(CODE, f"there is no folder {workspace!r}", view.source("agent.workspace"))


def command_has_time(view: PlanView) -> Iterator[Finding]:
    """The command ends before its rollout is dropped, or it could never be graded."""
    (part,) = view.parts["agents"]
    because = [view.source(name) for name in ("rollout_timeout_s", "agent.timeout_s", "agent.grace_s")]
    most = deadline_s(part.options, view.run.rollout_timeout_s)
    if most <= 0 or (part.options.timeout_s or 0) > most:
        message = "the command may take longer than 0.9 of its rollout's time, and could not be graded then"
        yield error(
            CODE_TIME, message, *because, fix="a longer --rollout-timeout-s, or a shorter --agent.timeout-s"
        )


def prompt_fits(view: PlanView) -> Iterator[Finding]:
    """The harness's own first prompt leaves room to work."""
    (part,) = view.parts["agents"]
    recipe = load_recipe(part.options.recipe)
    room = view.run.max_length or view.model.max_length
    if room is not None and recipe.prompt_tokens > room * 2 // 3:
        message = (
            f"{part.options.recipe} begins with about {recipe.prompt_tokens} tokens, max_length is {room}"
        )
        because = Source(f"{part.options.recipe} was measured", part.owner)
        fix = "--max-length 32768, with a model that allows it"
        yield Finding("warning", CODE_LENGTH, message, (view.source("max_length"), because), fix)


COMMAND: Final = AgentSpec(
    name="command",
    summary="any command line harness, unmodified, as a subprocess with its own home and workspace",
    api=1,
    factory="molt_plugin_agents.command:CommandAgent",
    options=CommandOptions,
    rules=(command_can_start, command_has_time, prompt_fits),
)
