from __future__ import annotations

import platform
from pathlib import Path

import pytest

from molt_core.plugins.fingerprint import differences, fingerprint
from molt_core.plugins.scan import scan

ACME = "molt-plugin-acme-prints"


def install(folder: Path, version: str = "1.0", source: str = "ONE = 1\n") -> Path:
    """A distribution with one plugin, as an installer leaves it."""
    package, info = folder / "acme_prints", folder / f"molt_plugin_acme_prints-{version}.dist-info"
    (package / "data").mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text(source)
    (package / "data" / "table.json").write_text("[]")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {ACME}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("[molt_core.hooks]\nprints = acme_prints.spec:PRINTS\n")
    return folder


def seen_from(folder: Path) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        return fingerprint([ACME])


def test_equal_sources_in_another_place_are_equal_and_what_python_compiled_is_no_source(tmp_path):
    one, other = install(tmp_path / "one"), install(tmp_path / "other")
    cache = other / "acme_prints" / "__pycache__"
    cache.mkdir()
    (cache / "__init__.cpython-311.pyc").write_bytes(b"x")

    assert seen_from(one) == seen_from(other)
    assert seen_from(one)["python"] == platform.python_version()


@pytest.mark.parametrize(
    "change",
    [
        lambda package: (package / "__init__.py").write_text("ONE = 2\n"),
        lambda package: (package / "data" / "table.json").write_text("[1]"),
        lambda package: (package / "data" / "table.json").rename(package / "table.json"),
        lambda package: (package / "more.py").write_text(""),
    ],
)
def test_a_source_that_differs_is_another_package_though_its_version_is_the_same(tmp_path, change):
    one, other = install(tmp_path / "one"), install(tmp_path / "other")
    change(other / "acme_prints")
    (difference,) = differences(seen_from(other), seen_from(one))

    assert difference.startswith(f"{ACME} is 1.0 (sources ")
    assert ", wanted 1.0 (sources " in difference


def test_a_package_that_comes_first_on_the_path_is_the_one_that_counts(tmp_path):
    below, above = install(tmp_path / "below"), install(tmp_path / "above", "2.0")
    wanted = seen_from(below)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(below))
        got = seen_from(above)
    (difference,) = differences(got, wanted)
    assert difference.startswith(f"{ACME} is 2.0 (sources ")


def test_what_is_missing_is_said_to_be(tmp_path):
    file = tmp_path / "reward.py"
    file.write_text("def reward(reply): return 1\n")
    packages = [str(file), ACME]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(install(tmp_path / "one")))
        wanted = fingerprint(packages)
    file.unlink()

    of_file, of_package = differences(fingerprint(packages), wanted)
    assert of_file.startswith(f"{file} is missing, wanted file ")
    assert of_package.startswith(f"{ACME} is missing, wanted 1.0 (sources ")


def test_versions_of_python_and_of_libraries_count_and_what_only_the_other_has_does_not():
    here = fingerprint(["molt-core"])
    assert "torch" in here
    assert "+" not in here["torch"], "a build for another processor is the same release"
    there = here | {"python": "3.8.0", "torch": "1.0", "extra": "7"}

    assert list(differences(there, here)) == [
        f"python is 3.8.0, wanted {here['python']}",
        f"torch is 1.0, wanted {here['torch']}",
    ]
    assert list(differences(here, here)) == []


def test_every_installed_plugin_has_sources():
    dists = {candidate.dist for candidate in scan().candidates}
    nothing = fingerprint(["packaging"])["packaging"].partition("(")[2]
    for name, text in fingerprint(dists).items():
        assert not text.endswith(nothing), name
