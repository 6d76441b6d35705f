"""The options `reward` and `reward_weights`, checked before launch without running a file.

A reward is the name of a grader, or FILE.py:FUNCTION. Light: importable with the spec. Loading
the function is in `reward_file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from molt_core.api import python_file
from molt_core.api.findings import Finding, error
from molt_core.api.options import option, options
from molt_core.api.python_file import split

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

GRADERS: Final = ("exact", "number")
CODE: Final = "ENVS1"
"""Of findings about the reward file; codes that begin with M are the core's."""


def absolute(rewards: Any) -> Any:
    """With absolute paths, because workers have other working directories."""
    if isinstance(rewards, str):  # from Python; flags and TOML give a tuple
        rewards = (rewards,)
    return tuple(map(python_file.absolute, rewards))


def known_rewards(rewards: tuple[str, ...]) -> str | None:
    for reward in rewards:
        parts = split(reward)
        if not (parts[1].isidentifier() if parts else reward in GRADERS):
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
    because = view.source("env.reward")
    for path, name in filter(None, map(split, part.options.reward)):
        try:
            defined = python_file.definitions(path)
        except ValueError as failure:
            yield error(CODE, f"reward file: {failure}", because, fix="--env.reward FILE.py:FUNCTION")
            continue
        if name not in defined.names:
            message = f"reward file {str(path)!r} defines no {name!r}"
            yield error(CODE, message, because, fix=defined.missing(name))
