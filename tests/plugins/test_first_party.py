"""The static table of names agrees with what the first-party packages really offer."""

from __future__ import annotations

import pytest

from molt_core.plugins.load import load_spec
from molt_core.plugins.names import FIRST_PARTY_DISTRIBUTIONS, owner_of
from molt_core.plugins.scan import scan

INSTALLED = [one for one in scan().candidates if one.dist in FIRST_PARTY_DISTRIBUTIONS]


def test_the_core_itself_is_installed():
    assert "molt-core" in {one.dist for one in INSTALLED}


@pytest.mark.parametrize("candidate", INSTALLED, ids=lambda one: f"{one.slot}/{one.name}")
def test_a_first_party_spec_loads_and_has_the_name_and_aliases_of_the_table(candidate):
    spec = load_spec(candidate)
    owner = owner_of(candidate.slot, candidate.name)
    assert owner is not None
    assert (spec.name, spec.aliases, candidate.dist) == (owner.name, owner.aliases, owner.dist)
