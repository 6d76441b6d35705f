"""What is installed of some packages, as texts that machines can compare.

That of a distribution is its version with a hash of the sources that Python would import for its plugins:
the same whether it was installed from a wheel or is edited in place, another where something else
comes first on the path. That of a Python file is a hash of it. Imports nothing of what it looks at.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from packaging.version import Version

from molt_core.api.spec import GROUP_PREFIX
from molt_core.plugins.names import CORE
from molt_core.plugins.requirements import CHECKED, installed_version

MISSING: Final = "missing"
DIGITS: Final = 12
"""Of a hash, in messages."""


def fingerprint(packages: Iterable[str]) -> dict[str, str]:
    """
    Args:
        packages: distributions, and absolute paths of Python files.

    Returns:
        Text by package; and by `python` and the libraries that plugins depend on, where installed, their versions.
    """
    found = {name: _of(name) for name in packages}
    for name in CHECKED.keys() - {CORE}:
        if version := installed_version(name):
            # builds for other processors are the same release
            found[name] = Version(version).public
    return {"python": platform.python_version(), **found}


def differences(got: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[str]:
    """One text for each package that is not as `wanted`."""
    for name, text in sorted(wanted.items()):
        if (there := got.get(name, MISSING)) != text:
            yield f"{name} is {there}, wanted {text}"


def _of(package: str) -> str:
    if Path(package).is_absolute():
        return f"file {_hash([Path(package)])}" if Path(package).is_file() else MISSING
    try:
        dist = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return MISSING
    modules = {
        point.value.partition(":")[0].partition(".")[0]
        for point in dist.entry_points
        if point.group.startswith(GROUP_PREFIX)
    }
    return f"{dist.version} (sources {_hash(map(Path, _locations(modules)))})"


def _locations(modules: Iterable[str]) -> Iterator[str]:
    """Where Python would import top-level modules from: folders, or files."""
    for module in sorted(modules):
        if spec := find_spec(module):
            yield from spec.submodule_search_locations or filter(None, [spec.origin])


def _hash(places: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for place in places:
        files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
        for path in files:
            if "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(place.parent)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:DIGITS]
