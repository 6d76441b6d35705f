from __future__ import annotations

import sys

import pytest

from molt_core.errors import ConfigError
from molt_core.plugins.load import load_spec
from molt_core.plugins.scan import scan

GOOD = """
from molt_core.api.spec import EnvironmentSpec, EstimatorSpec
RANK = EstimatorSpec(name="rank", summary="ranks", api=1, factory="not_there:Rank")
MAZE = EnvironmentSpec(name="maze", summary="a maze", api=1, factory="not_there:Maze")
"""


@pytest.fixture
def candidate(site, fake_dist, request, monkeypatch):
    """An installed candidate `rank` of acme 1.2 whose spec module has the given text."""
    module = f"acme_{abs(hash(request.node.name))}"

    def make(text=GOOD, *, attribute="RANK", name="rank", requires=(), write=True):
        points = {"molt_core.estimators": {name: f"{module}:{attribute}"}}
        fake_dist(
            "acme", "1.2", entry_points=points, modules={module: text} if write else {}, requires=requires
        )
        monkeypatch.delitem(sys.modules, module, raising=False)
        (found,) = scan([str(site)]).candidates
        return found

    return make


def refused(found):
    """The finding; checks what every error about a plugin must carry."""
    with pytest.raises(ConfigError) as caught:
        load_spec(found)
    (finding,) = caught.value.findings
    whole = " ".join([finding.message, *map(str, finding.because)])
    needed = ["slot estimators", repr(found.name), "acme 1.2", found.value]
    assert [word for word in needed if word not in whole] == []
    return finding


def test_a_good_spec_is_returned_and_its_factory_not_imported(candidate):
    spec = load_spec(candidate())
    assert spec.summary == "ranks"
    assert "not_there" not in sys.modules


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import acme_missing_dependency", "ModuleNotFoundError: No module named 'acme_missing_dependency'"),
        ("raise SystemExit('no licence')", "SystemExit: no licence"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError: "),
        (GOOD.replace("api=1, ", ""), "missing 1 required keyword-only argument: 'api'"),
    ],
)
def test_whatever_the_module_raises_becomes_the_reason(candidate, text, reason):
    finding = refused(candidate(text))
    assert finding.code == "M104"
    assert reason in finding.message


def test_the_line_that_raised_is_named(candidate, site):
    found = candidate("ok = 1\nboom = ok / 0\n")
    place = str(refused(found).because[-1])
    assert "boom = ok / 0" in place
    assert f"{site}/{found.value.split(':')[0]}.py:2" in place


def test_keyboard_interrupt_is_not_swallowed(candidate):
    with pytest.raises(KeyboardInterrupt):
        load_spec(candidate("raise KeyboardInterrupt"))


def test_an_orphan_whose_files_are_gone_says_reinstall(candidate):
    finding = refused(candidate(write=False))
    assert finding.code == "M104"
    assert "pip install --force-reinstall acme" in finding.fix


def test_a_missing_attribute_is_named(candidate):
    assert "has no attribute 'RNAK'" in refused(candidate(attribute="RNAK")).message


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("RANK = 'rank'", "a str"),
        ("class RANK: pass", "the class RANK"),
        ("import json as RANK", "a module"),
        (GOOD + "RANK = MAZE", "a EnvironmentSpec"),
    ],
)
def test_a_value_that_is_no_spec_of_the_slot_says_what_was_found(candidate, text, got):
    finding = refused(candidate(text))
    assert finding.code == "M105"
    assert f"is {got}, wanted an instance of EstimatorSpec" in finding.message


def test_another_name_in_the_spec_is_refused(candidate):
    finding = refused(candidate(name="order"))
    assert finding.code == "M106"
    assert "its name is 'rank'" in finding.message


def test_a_spelling_with_underscore_is_the_same_name(candidate):
    text = GOOD.replace('name="rank"', 'name="my_rank"')
    assert load_spec(candidate(text, name="my-rank")).name == "my_rank"


@pytest.mark.parametrize(("api", "outdated"), [(2, "molt-core"), (0, "acme")])
def test_an_api_number_that_is_not_driven_says_who_must_upgrade(candidate, api, outdated):
    finding = refused(candidate(GOOD.replace("api=1", f"api={api}")))
    assert finding.code == "M107"
    assert f"API {api} of slot estimators, this molt-core has 1" in finding.message
    assert finding.fix == f"pip install --upgrade {outdated}"


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("molt-core>=7", "it needs molt-core>=7, installed is 0."),
        ("torch>=99; python_version > '3'", "it needs torch>=99, installed is "),
        ("vllm<0.1", "it needs vllm<0.1, installed is "),
    ],
)
def test_an_unmet_requirement_is_told_before_anything_is_imported(candidate, requirement, reason):
    finding = refused(candidate("raise RuntimeError('imported')", requires=[requirement]))
    assert finding.code == "M108"
    assert reason in finding.message
