"""What is inside a published weights file, and the check that every engine runs before loading one.

In: safetensors files. Out: names and shapes, or an error that lists what doesn't fit. Reads
headers only; loading tensors is the engine's business.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

Shape = tuple[int, ...]

MAX_NAMES_SHOWN: Final = 8


def tensor_shapes(path: Path) -> dict[str, Shape]:
    """Names and shapes of the tensors in a safetensors file.

    Raises:
        ValueError: the file is missing, is no safetensors file, or was cut short.
    """
    try:
        with path.open("rb") as file:
            header_length = int.from_bytes(file.read(8), "little")
            num_bytes = path.stat().st_size
            if not 0 < header_length <= num_bytes - 8:
                raise ValueError(f"{path} ({num_bytes} bytes) is not a safetensors file")
            header = json.loads(file.read(header_length))
        header.pop("__metadata__", None)
        end = 8 + header_length + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
        shapes = {name: tuple(tensor["shape"]) for name, tensor in header.items()}
    except OSError as error:
        raise ValueError(f"weights file {path} can't be read: {error}") from error
    except (AttributeError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} has a broken safetensors header: {error!r}") from error
    if end != num_bytes:
        raise ValueError(
            f"{path} has {num_bytes} bytes, its header wants {end}: it was not written completely"
        )
    return shapes


def check_coverage(
    expected: Mapping[str, Shape], given: Mapping[str, Shape], optional: Collection[str] = ()
) -> None:
    """A set of tensors fits a model: none missing, none unknown, every shape equal.

    Args:
        expected: names and shapes that the model is made of.
        given: those that are about to be loaded.
        optional: names that may be there or not: the second of two tied weights.

    Raises:
        ValueError: with the names of all that don't fit.
    """
    missing = sorted(expected.keys() - given.keys() - set(optional))
    unknown = sorted(given.keys() - expected.keys() - set(optional))
    reshaped = sorted(
        f"{name} {list(given[name])} (wanted {list(expected[name])})"
        for name in expected.keys() & given.keys()
        if given[name] != expected[name]
    )
    found = {"missing": missing, "unknown": unknown, "of another shape": reshaped}
    problems = [f"{len(names)} {what}: {_listed(names)}" for what, names in found.items() if names]
    if problems:
        raise ValueError(
            f"the {len(given)} published tensors don't fit the {len(expected)} of the engine's model; "
            + "; ".join(problems)
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES_SHOWN])
    return shown if len(names) <= MAX_NAMES_SHOWN else f"{shown} and {len(names) - MAX_NAMES_SHOWN} more"
