"""A user's reward function, called with what it has parameters for."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from molt_core.api import python_file
from molt_core.api.environment import Reply, Row


class RewardFunction:
    """Calls `function(text, **columns)` with those columns that it has a parameter for, or all (`**columns`).

    Parameters beyond the first that are called `workspace`, `judge` or `reply` get what the reply
    knows of these, and `reply` the `Reply` itself; a column of such a name is hidden by them.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._function = python_file.load(path, name)
        parameters = list(inspect.signature(self._function).parameters.values())
        self._named = frozenset(parameter.name for parameter in parameters[1:])
        self._takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

    def __call__(self, text: str, row: Row, reply: Reply) -> Any:
        offered = {"workspace": reply.workspace, "judge": reply.judge, "reply": reply}
        values = {name: value for name, value in row.items() if self._takes_all or name in self._named}
        values |= {name: value for name, value in offered.items() if name in self._named}
        return self._function(text, **values)
