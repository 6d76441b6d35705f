"""Things in Python files of the user, written FILE.py:NAME: looked at without running the file, loaded where they run.

Reads the file's syntax before launch, so that a typing mistake costs no start; runs it in workers only.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import zlib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from molt_core.errors import MoltError


def split(text: str) -> tuple[Path, str] | None:
    """File and name; None where the text has another form. The name is empty in a bare `FILE.py`."""
    path, colon, name = text.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), name
    return (Path(text), "") if text.endswith(".py") else None


def absolute(text: str) -> str:
    """With an absolute path, because workers have other working directories; other texts as they are."""
    parts = split(text)
    return f"{parts[0].expanduser().absolute()}:{parts[1]}" if parts else text


@frozen
class Definitions:
    """What the top level of a file binds."""

    names: frozenset[str]
    methods: Mapping[str, frozenset[str]]
    """Of each class, those of its bases in the same file included."""

    def missing(self, name: str) -> str:
        """What to write instead of a name that is not there."""
        close = get_close_matches(name, sorted(self.names), n=1)
        return (
            f"did you mean {close[0]}?"
            if close
            else f"it defines {', '.join(sorted(self.names)) or 'nothing'}"
        )


def definitions(path: Path) -> Definitions:
    """Look at a file without running it.

    Raises:
        ValueError: it can't be read, or is not Python; says which, with the line.
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except OSError as failure:
        raise ValueError(f"{str(path)!r} can't be read: {failure.strerror}") from failure
    except (SyntaxError, ValueError) as failure:
        line = getattr(failure, "lineno", None)
        raise ValueError(f"{path}:{line or 1}: not Python: {failure}") from failure
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    methods = {name: frozenset(_methods(name, classes, frozenset())) for name in classes}
    return Definitions(frozenset(_bound(tree)), methods)


def _methods(name: str, classes: Mapping[str, ast.ClassDef], below: frozenset[str]) -> Iterator[str]:
    for node in classes[name].body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
    for base in classes[name].bases:
        if isinstance(base, ast.Name) and base.id in classes.keys() - below - {name}:
            yield from _methods(base.id, classes, below | {name})


def _bound(tree: ast.Module) -> Iterator[str]:
    """Names that the top level binds to functions, classes, imports or values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node in tree.body:
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def load(path: Path, name: str) -> Any:
    """The function or class `name` of the file. The file is run once in a process.

    Raises:
        MoltError: the file can't be imported, or holds nothing callable of that name.
    """
    found = getattr(_module(path.absolute()), name, None)
    if not callable(found):
        raise MoltError(f"{name!r} in {str(path)!r} is {found!r}, wanted a function or a class")
    return found


@cache
def _module(path: Path) -> ModuleType:
    # by path, so that two files called reward.py, or one called random.py, don't meet in sys.modules
    module_name = f"molt_file_{zlib.crc32(str(path).encode()):08x}_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(
            str(path.parent)
        )  # last, so that its neighbours are found and nothing is hidden by them
    try:
        spec.loader.exec_module(module)
    except Exception as failure:  # the user's file may raise anything
        del sys.modules[module_name]
        raise MoltError(f"{str(path)!r} fails on import: {type(failure).__name__}: {failure}") from failure
    return module
