"""The lock holds what the workspace needs, and the script that makes it drops what it should."""

from __future__ import annotations

import re
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]


def load_script() -> ModuleType:
    spec = spec_from_file_location("lock_script", ROOT / "scripts" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lock = load_script()


def locked() -> dict[str, str]:
    pins = lock.wanted_lines(lock.LOCK.read_text())
    return dict(pin.split("==") for pin in pins)


def test_every_line_is_one_exact_version_in_order_of_names() -> None:
    pins = lock.wanted_lines(lock.LOCK.read_text())
    assert all(re.fullmatch(r"[a-z0-9-]+==[^=<>~; ]+", pin) for pin in pins)
    names = [pin.split("==")[0] for pin in pins]
    assert names == sorted(set(names))


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_the_lock_satisfies_what_each_distribution_and_its_build_require(project: Path) -> None:
    table = tomllib.loads(project.read_text())
    versions = locked()
    for line in [*table["project"].get("dependencies", []), *table["build-system"]["requires"]]:
        requirement = Requirement(line)
        if not requirement.name.startswith("molt-"):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement.name} is in no lock; name it in requirements/cpu.in"
            assert requirement.specifier.contains(version, prereleases=True), f"{line}, locked {version}"


def test_the_lock_satisfies_cpu_in() -> None:
    versions = locked()
    for line in lock.wanted_lines(lock.WANTED.read_text()):
        requirement = Requirement(line)
        assert requirement.specifier.contains(
            versions[canonicalize_name(requirement.name)], prereleases=True
        ), line


def test_builds_that_break_a_cpu_torch_are_not_in_the_lock() -> None:
    assert not locked().keys() & {"torchvision", "torchaudio", "torchcodec"}
    assert not [name for name in locked() if name.startswith(("nvidia-", "cuda-"))]
    assert locked()["torch"].endswith("+cpu")


PACKAGES = {
    "app": ("1.0", ("left-pad", 'colour ; extra == "pretty"', 'old ; python_version < "3"', "Bad_Wheel>=2")),
    "left-pad": ("2.0", ("app",)),
    "colour": ("3.0", ()),
    "bad-wheel": ("4.0", ("only-for-bad",)),
    "only-for-bad": ("5.0", ()),
}


def test_closure_follows_requirements_and_survives_cycles() -> None:
    assert lock.closure(["app"], PACKAGES, frozenset()) == {
        "app": "1.0", "left-pad": "2.0", "bad-wheel": "4.0", "only-for-bad": "5.0",
    }  # fmt: skip


def test_closure_follows_extras_only_when_asked() -> None:
    assert "colour" in lock.closure(["app[pretty]"], PACKAGES, frozenset())


def test_what_only_a_left_out_package_needs_is_left_out_too() -> None:
    assert lock.closure(["app"], PACKAGES, frozenset({"bad-wheel"})) == {"app": "1.0", "left-pad": "2.0"}


def test_a_package_that_pip_did_not_find_is_an_error() -> None:
    with pytest.raises(KeyError, match="absent"):
        lock.closure(["absent"], PACKAGES, frozenset())
