"""requirements/workspace.txt installs every distribution of the repository, once."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_workspace_lists_every_distribution_with_the_core_first() -> None:
    projects = [*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("molt_plugins_*/pyproject.toml")]
    expected = ["-e .", *sorted(f"-e {project.parent.relative_to(ROOT)}" for project in projects)]
    assert (ROOT / "requirements" / "workspace.txt").read_text().splitlines() == expected


def test_no_folder_of_plugins_is_an_empty_shell() -> None:
    for folder in (ROOT / "plugins").iterdir():
        if any(path.is_file() and path.suffix == ".py" for path in folder.rglob("*")):
            assert (folder / "pyproject.toml").is_file(), folder
            assert (folder / "README.md").is_file(), folder
            assert list(folder.glob("src/molt_plugin_*/spec.py")), folder
            assert list(folder.glob("tests/**/test_*.py")), folder
