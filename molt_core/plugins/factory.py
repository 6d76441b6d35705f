"""An import path to the object it names. Used for specs on the driver and factories in workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from molt_core.api import python_file


def import_object(path: str) -> Any:
    """Import `module:attribute`, where the attribute may be dotted, or load `FILE.py:NAME`.

    Raises:
        MoltError: the file can't be loaded.
        ImportError: the path has another form, or the module has no such attribute.
        Exception: whatever importing the module raises.
    """
    if file := python_file.split(path):
        return python_file.load(*file)
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ImportError(f"{path!r} is no import path, wanted 'module:attribute'")
    found: Any = import_module(module_name)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ImportError(f"{module_name} has no attribute {attribute!r}", path=module_name) from error
    return found


def import_factory(path: str) -> Callable[..., Any]:
    """What makes a part of its options: `factory(options, *context)`.

    In a file it may also be a class that takes no options, or the function that is an agent's `run`.
    """
    found = import_object(path)
    if python_file.split(path) is None:
        return found  # type: ignore[no-any-return]
    if not isinstance(found, type):
        return lambda _options: SimpleNamespace(run=found)
    parameters = inspect.signature(found).parameters.values()
    takes_options = any(
        one.default is one.empty and one.kind <= one.POSITIONAL_OR_KEYWORD for one in parameters
    )
    return found if takes_options else lambda _options: found()
