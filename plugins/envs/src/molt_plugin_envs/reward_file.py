"""Loads the user's reward function from a file, and calls it with the columns of a row."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from molt_core.api.environment import Reply, Row
from molt_core.errors import MoltError


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """The function `name` of the file, run under a module name of its own.

    Raises:
        MoltError: the file can't be imported, or holds no such function.
    """
    # by path, so that two files called reward.py, or one called random.py, don't meet in sys.modules
    module_name = f"molt_reward_{zlib.crc32(str(path.absolute()).encode()):08x}_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise MoltError(f"reward file {str(path)!r} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as failure:  # the user's file may raise anything
        del sys.modules[module_name]
        raise MoltError(
            f"reward file {str(path)!r} fails on import: {type(failure).__name__}: {failure}"
        ) from failure
    function = getattr(module, name, None)
    if not callable(function):
        raise MoltError(f"{name!r} in reward file {str(path)!r} is {function!r}, wanted a function")
    return function  # type: ignore[no-any-return]


class RewardFunction:
    """Calls `function(text, **columns)` with those columns that it has a parameter for, or all (`**columns`).

    Parameters beyond the first that are called `workspace`, `judge` or `reply` get what the reply
    knows of these, and `reply` the `Reply` itself; a column of such a name is hidden by them.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._function = load_function(path, name)
        parameters = list(inspect.signature(self._function).parameters.values())
        self._named = frozenset(parameter.name for parameter in parameters[1:])
        self._takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

    def __call__(self, text: str, row: Row, reply: Reply) -> Any:
        offered = {"workspace": reply.workspace, "judge": reply.judge, "reply": reply}
        values = {name: value for name, value in row.items() if self._takes_all or name in self._named}
        values |= {name: value for name, value in offered.items() if name in self._named}
        return self._function(text, **values)
