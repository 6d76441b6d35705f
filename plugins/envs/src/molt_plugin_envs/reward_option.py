"""The option `reward`: name of a grader, or FILE.py:FUNCTION; checked before launch without running the file.

Light: importable with the spec. Loading the function is in `reward_file`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from molt_core.api.findings import Finding, error

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

GRADERS: Final = ("exact", "number")
CODE: Final = "ENVS1"
"""Of findings about the reward file; codes that begin with M are the core's."""


def split(reward: str) -> tuple[Path, str] | None:
    """File and function, or None for a grader's name."""
    path, colon, function = reward.rpartition(":")
    return (Path(path), function) if colon else None


def absolute(reward: Any) -> Any:
    """With an absolute path, because workers have other working directories."""
    parts = split(reward) if isinstance(reward, str) else None
    return f"{parts[0].absolute()}:{parts[1]}" if parts else reward


def known_reward(reward: str) -> str | None:
    parts = split(reward)
    sound = reward in GRADERS if parts is None else parts[0].suffix == ".py" and parts[1].isidentifier()
    return None if sound else f"must be {', '.join(GRADERS)}, or FILE.py:FUNCTION"


def reward_file_is_sound(view: PlanView) -> Iterator[Finding]:
    """The file is there, is Python, and defines the function."""
    (part,) = view.parts["envs"]
    parts = split(part.options.reward)
    if parts is None:
        return
    path, function = parts
    because = view.source("env.reward")
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
