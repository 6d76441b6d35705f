from __future__ import annotations

import pytest

from molt_core.errors import ConfigError
from molt_core.plugins.resolve import resolve
from molt_core.plugins.scan import Candidate, Scan

OURS = "molt-plugin-estimators"
GRPO = Candidate("estimators", "grpo", OURS, "0.1.0", "m:GRPO")
DR_GRPO = Candidate("estimators", "dr_grpo", OURS, "0.1.0", "m:DR_GRPO")
ACME_GRPO = Candidate("estimators", "grpo", "acme-rl", "1.2", "acme:GRPO")
ACME_RANK = Candidate("estimators", "rank", "acme-rl", "1.2", "acme:RANK")
FAST_RANK = Candidate("estimators", "rank", "fast-rank", "0.3", "fast:RANK")
MAZE = Candidate("envs", "maze", "acme-rl", "1.2", "acme:MAZE")


def refused(installed: tuple[Candidate, ...], slot: str, wanted: str):
    with pytest.raises(ConfigError) as caught:
        resolve(Scan(installed), slot, wanted)
    (finding,) = caught.value.findings
    return finding


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("grpo", GRPO),
        ("GRPO", GRPO),
        ("dr-grpo", DR_GRPO),
        ("acme-rl/grpo", ACME_GRPO),
        ("Acme_RL/grpo", ACME_GRPO),
        (f"{OURS}/dr-grpo", DR_GRPO),
    ],
)
def test_a_bare_name_is_ours_and_a_qualified_one_is_exact(wanted, meant):
    assert resolve(Scan((GRPO, DR_GRPO, ACME_GRPO)), "estimators", wanted) == meant


def test_a_stranger_alone_with_its_name_needs_no_qualifier():
    assert resolve(Scan((GRPO, ACME_RANK)), "estimators", "rank") == ACME_RANK


def test_two_strangers_with_one_name_are_refused_only_when_asked():
    installed = (GRPO, ACME_RANK, FAST_RANK)
    assert resolve(Scan(installed), "estimators", "grpo") == GRPO
    assert resolve(Scan(installed), "estimators", "fast-rank/rank") == FAST_RANK
    finding = refused(installed, "estimators", "rank")
    assert finding.code == "M103"
    assert finding.message == "estimator 'rank' is offered by acme-rl 1.2 and fast-rank 0.3"
    assert finding.fix == "write --estimator acme-rl/rank or --estimator fast-rank/rank"


def test_a_known_name_that_is_not_installed_names_the_package():
    finding = refused((), "engines", "vllm")
    assert finding.code == "M102"
    assert "it ships in molt-plugin-vllm" in finding.message
    assert finding.fix == "pip install molt-plugin-vllm"


def test_an_alias_that_is_not_installed_names_the_package_too():
    assert refused((), "models", "smollm2").fix == "pip install molt-plugin-models"


def test_a_stranger_does_not_stand_in_for_a_missing_first_party_plugin():
    finding = refused((ACME_GRPO,), "estimators", "grpo")
    assert finding.code == "M102"
    assert "acme-rl/grpo" in str(finding.because[0])


def test_a_misspelt_name_gets_the_nearest_and_the_installed_ones():
    finding = refused((GRPO, ACME_RANK), "estimators", "gropo")
    assert finding.message == "no estimator is named 'gropo'; did you mean 'grpo'?"
    assert str(finding.because[0]) == "installed: grpo, rank"
    assert finding.fix == "write --estimator grpo"


def test_a_misspelt_name_of_something_not_installed_says_what_to_install():
    finding = refused((GRPO,), "trainers", "fdsp")
    assert finding.fix == "write --trainer fsdp (pip install molt-plugin-fsdp)"


def test_a_name_like_no_other_gets_the_list():
    finding = refused((GRPO,), "estimators", "xyzzy")
    assert finding.message == "no estimator is named 'xyzzy'"
    assert "molt plugins list --slot estimators" in finding.fix


def test_a_name_of_another_slot_says_which_flag_takes_it():
    finding = refused((GRPO, MAZE), "estimators", "maze")
    assert finding.fix == "write --env maze"


@pytest.mark.parametrize(
    ("wanted", "says", "fix"),
    [
        ("acme-rl/rnk", "did you mean 'rank'?", "write --estimator acme-rl/rank"),
        ("acme/rank", "did you mean 'acme-rl'?", "write --estimator acme-rl/rank"),
        ("nobody/rank", "no installed package 'nobody'", "pip install nobody"),
    ],
)
def test_a_qualified_name_that_misses_says_which_half_is_wrong(wanted, says, fix):
    finding = refused((ACME_RANK, MAZE), "estimators", wanted)
    assert says in finding.message
    assert finding.fix == fix


@pytest.mark.parametrize("wanted", ["", "/", "acme-rl/", "/rank", "a/b/c"])
def test_malformed_names_are_refused(wanted):
    assert refused((GRPO, ACME_RANK, FAST_RANK), "estimators", wanted).level == "error"
