"""The options `reward` and `reward_weights`, checked before launch without running a file.

A reward is the name of a grader, or FILE.py:FUNCTION. Light: importable with the spec. Loading
the function is in `reward_file`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from molt_core.api.findings import Finding, Source, error
from molt_core.api.options import option, options

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

GRADERS: Final = ("exact", "number")
CODE: Final = "ENVS1"
"""Of findings about the reward file; codes that begin with M are the core's."""


def split(reward: str) -> tuple[Path, str] | None:
    """File and function, or None for a grader's name."""
    path, colon, function = reward.rpartition(":")
    return (Path(path), function) if colon else None


def absolute(rewards: Any) -> Any:
    """With absolute paths, because workers have other working directories."""
    if isinstance(rewards, str):  # from Python; flags and TOML give a tuple
        rewards = (rewards,)
    parts = [(reward, split(reward)) for reward in rewards]
    return tuple(f"{found[0].absolute()}:{found[1]}" if found else reward for reward, found in parts)


def known_rewards(rewards: tuple[str, ...]) -> str | None:
    for reward in rewards:
        parts = split(reward)
        if not (reward in GRADERS if parts is None else parts[0].suffix == ".py" and parts[1].isidentifier()):
            return f"must be {', '.join(GRADERS)}, or FILE.py:FUNCTION; {reward!r} is none"
    return None if rewards else "must name at least one reward"


def names(rewards: Sequence[str]) -> list[str]:
    """A short name for each reward: the grader's or function's, with its file where two would be equal."""
    parts = [(reward, split(reward)) for reward in rewards]
    short = [found[1] if found else reward for reward, found in parts]
    if len(set(short)) == len(short):
        return short
    return [f"{found[0].stem}.{found[1]}" if found else reward for reward, found in parts]


@options
class RewardOptions:
    reward: tuple[str, ...] = option(
        ("number",),
        help="how replies are graded: exact, number (the last one counts), or FILE.py:FUNCTION; may be repeated",
        convert=absolute,
        check=known_rewards,
    )
    reward_weights: tuple[float, ...] = option((), help="of each reward, in their order; default: 1 each")

    def __attrs_post_init__(self) -> None:
        if self.reward_weights and len(self.reward_weights) != len(self.reward):
            got = f"{len(self.reward_weights)} for {len(self.reward)} rewards"
            raise ValueError(f"reward_weights must be one for each reward, got {got}")
        if len(set(names(self.reward))) != len(self.reward):
            raise ValueError(f"rewards must be different ones, got {', '.join(self.reward)}")


def reward_files_are_sound(view: PlanView) -> Iterator[Finding]:
    """Each file is there, is Python, and defines the function."""
    (part,) = view.parts["envs"]
    for reward in part.options.reward:
        if (parts := split(reward)) is not None:
            yield from _file_findings(*parts, view.source("env.reward"))


def _file_findings(path: Path, function: str, because: Source) -> Iterator[Finding]:
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except OSError as failure:
        message = f"reward file {str(path)!r} can't be read: {failure.strerror}"
        yield error(CODE, message, because, fix="--env.reward FILE.py:FUNCTION")
        return
    except (SyntaxError, ValueError) as failure:
        line = getattr(failure, "lineno", None)
        yield error(CODE, f"{path}:{line or 1}: not Python: {failure}", because)
        return
    defined = sorted(_defined(tree))
    if function not in defined:
        close = get_close_matches(function, defined, n=1)
        fix = f"did you mean {close[0]}?" if close else f"it defines {', '.join(defined) or 'nothing'}"
        yield error(CODE, f"reward file {str(path)!r} defines no {function!r}", because, fix=fix)


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names that the top level of a module binds to functions, imports or values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node in tree.body:
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
