"""An import path to the object it names. Used for specs on the driver and factories in workers."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_object(path: str) -> Any:
    """Import `module:attribute`, where the attribute may be dotted.

    Raises:
        ImportError: the path has another form, or the module has no such attribute.
        Exception: whatever importing the module raises.
    """
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
