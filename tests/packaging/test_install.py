"""`make install`: when it does something, where torch is looked for, what a failure says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def install() -> ModuleType:
    spec = spec_from_file_location("install_script", ROOT / "scripts" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, looking at a copy of what it reads."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for path in [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]:
        (tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    for name in ("LOCK", "WORKSPACE", "VENV"):
        monkeypatch.setattr(install, name, tmp_path / getattr(install, name).relative_to(ROOT))
    monkeypatch.setattr(install, "ROOT", tmp_path)
    return install


def test_with_its_stamp_in_place_nothing_is_done(
    copy: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    copy.VENV.mkdir()
    (copy.VENV / f".installed-{copy.fingerprint()}").touch()
    copy.main()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "name",
    [
        "requirements/cpu.lock",
        "requirements/workspace.txt",
        "pyproject.toml",
        "plugins/models/pyproject.toml",
    ],
)
def test_a_change_of_what_decides_the_install_asks_for_a_new_one(copy: ModuleType, name: str) -> None:
    before = copy.fingerprint()
    assert copy.fingerprint() == before
    with (copy.ROOT / name).open("a") as changed:
        changed.write("# changed\n")
    assert copy.fingerprint() != before


def test_the_second_source_is_tried_when_the_first_has_nothing(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        install, "PIP", (sys.executable, "-c", "import sys; sys.exit('elsewhere' not in sys.argv)")
    )
    install.step("torch", ["here"], ["elsewhere"])
    assert capsys.readouterr().out.startswith("  torch ... ")


def test_when_every_source_fails_what_each_said_is_shown(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        install, "PIP", (sys.executable, "-c", "import sys; sys.exit('nothing in ' + sys.argv[1])")
    )
    with pytest.raises(SystemExit) as stopped:
        install.step("torch", ["one"], ["two"])
    text = str(stopped.value)
    assert "nothing in one" in text
    assert "nothing in two" in text
    assert "could not install torch" in text


def test_a_python_that_cannot_make_environments_is_told_what_is_missing(
    copy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, *, with_pip: bool) -> None:
        folder.mkdir()
        raise subprocess.CalledProcessError(1, "ensurepip")

    monkeypatch.setattr(copy.venv, "create", fail)
    with pytest.raises(SystemExit, match="python3-venv"):
        copy.make_venv()
    assert not copy.VENV.exists()


def test_make_without_a_usable_python_says_which_is_needed() -> None:
    answer = subprocess.run(
        ["make", "--no-print-directory", "install", "PYTHON="],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode != 0
    assert "Molt needs Python 3.11 or newer" in answer.stderr
    assert "PYTHON=" in answer.stderr
