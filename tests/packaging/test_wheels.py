"""Each distribution's wheel builds alone, holds only itself, and installs beside a molt-core wheel.

The environment that they are installed into has nothing but the declared dependencies of
molt-core, linked from the running one: what works there needs no torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel by name of its folder; `.` of the repository is called molt-core."""
    made = {}
    for project in PROJECTS:
        target = tmp_path_factory.mktemp("wheels")
        command = [
            *PIP,
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "-w",
            str(target),
            str(project),
        ]
        subprocess.run(command, check=True, timeout=120)
        (made["molt-core" if project == ROOT else project.name],) = target.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with all wheels, and what molt-core depends on."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [
        *PIP,
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        *map(str, wheels.values()),
    ]
    subprocess.run(command, check=True, timeout=120)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for entry in entries_of(dependencies("molt-core")):
        (site_packages / entry.name).symlink_to(entry)
    return folder


def dependencies(name: str) -> set[str]:
    """Names of all that a distribution requires, without extras."""
    found: set[str] = set()
    todo = [name]
    while todo:
        for line in metadata.requires(todo.pop()) or ():
            requirement = Requirement(line)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if applies and requirement.name not in found:
                found.add(requirement.name)
                todo.append(requirement.name)
    return found


def entries_of(names: set[str]) -> Iterator[Path]:
    """Files and folders that distributions put at the top of site-packages."""
    site_packages = Path(sysconfig.get_path("purelib"))
    for name in names:
        tops = {Path(str(file)).parts[0] for file in metadata.files(name) or ()}
        yield from (site_packages / top for top in tops if top not in ("..", "__pycache__"))


def call(environment: Path, code: str) -> str:
    command = [environment / "bin" / "python", "-I", "-c", code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60, cwd=environment
    ).stdout


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_core_wheel_holds_only_the_core(wheels: dict[str, Path]) -> None:
    names = names_in(wheels["molt-core"])
    assert {name.split("/")[0] for name in names} == {"molt_core", "molt_core-0.1.0.dist-info"}
    assert "molt_core/__init__.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.parametrize("project", PROJECTS[1:], ids=lambda path: path.name)
def test_a_plugin_wheel_holds_only_its_package_and_needs_the_core(
    project: Path, wheels: dict[str, Path]
) -> None:
    names = names_in(wheels[project.name])
    package = f"molt_plugin_{project.name.replace('-', '_')}"
    assert {name.split("/")[0] for name in names} == {package, f"{package}-0.1.0.dist-info"}
    assert f"{package}/spec.py" in names
    with zipfile.ZipFile(wheels[project.name]) as archive:
        text = archive.read(f"{package}-0.1.0.dist-info/METADATA").decode()
    assert "Requires-Dist: molt-core<0.2,>=0.1" in text


def test_data_files_of_plugins_are_in_their_wheels(wheels: dict[str, Path]) -> None:
    assert "molt_plugin_models/corpus.txt" in names_in(wheels["models"])
    assert "molt_plugin_agents/recipes/codex.toml" in names_in(wheels["agents"])


def test_what_is_imported_is_what_was_installed(environment: Path) -> None:
    code = "import molt_core, molt_plugin_models; print(molt_core.__file__, molt_plugin_models.__file__)"
    assert all(Path(path).is_relative_to(environment) for path in call(environment, code).split())


def test_every_entry_point_loads_without_torch(environment: Path) -> None:
    code = (
        "import sys; from importlib import metadata; "
        "found = [e for d in metadata.distributions() for e in d.entry_points if e.group.startswith('molt_core.')]; "
        "[e.load() for e in found]; "
        "assert not {'torch', 'ray', 'vllm', 'transformers'} & set(sys.modules); "
        "print(*sorted({e.dist.name for e in found}))"
    )
    expected = sorted(
        ["molt-core", *(f"molt-plugin-{project.name.replace('_', '-')}" for project in PROJECTS[1:])]
    )
    assert call(environment, code).split() == expected


def test_the_command_lists_what_was_installed(environment: Path) -> None:
    command = [environment / "bin" / "molt", "plugins", "list", "--json"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, cwd=environment)
    found = {(each["slot"], each["name"]) for each in json.loads(answer.stdout)}
    assert {("executors", "ray"), ("models", "tiny"), ("losses", "ppo"), ("estimators", "grpo")} <= found
