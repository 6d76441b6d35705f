from __future__ import annotations

import string
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molt_core.api.spec import SLOTS
from molt_core.plugins.names import (
    FIRST_PARTY,
    FIRST_PARTY_DISTRIBUTIONS,
    is_valid,
    nearest,
    normalized,
    normalized_dist,
    owner_of,
)

NAMES = st.text(alphabet=string.ascii_letters + string.digits + "+._-", min_size=1, max_size=20)


@given(NAMES)
def test_case_and_underscores_do_not_tell_names_apart(name):
    form = normalized(name)
    assert normalized(form) == form
    assert (
        normalized(name.upper()) == normalized(name.swapcase()) == normalized(name.replace("-", "_")) == form
    )


@given(st.text(alphabet=string.ascii_letters + "._-", min_size=1, max_size=20))
def test_runs_of_separators_do_not_tell_distributions_apart(name):
    form = normalized_dist(name)
    assert normalized_dist(form) == form == normalized_dist(name.replace("_", "-").replace("-", "..").upper())


def test_every_first_party_spelling_means_one_plugin():
    spellings = [
        (owner.slot, normalized(spelling))
        for owner in FIRST_PARTY
        for spelling in (owner.name, *owner.aliases)
    ]
    assert len(set(spellings)) == len(spellings)


def test_the_table_is_about_known_slots_valid_names_and_our_distributions():
    assert {owner.slot for owner in FIRST_PARTY} <= set(SLOTS)
    assert [owner.name for owner in FIRST_PARTY if not is_valid(owner.name)] == []
    assert {owner.dist for owner in FIRST_PARTY} <= FIRST_PARTY_DISTRIBUTIONS


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("reinforce", "reinforce++"),
        ("REINFORCE_PP", "reinforce++"),
        ("reinforce_baseline", "reinforce++-baseline"),
        ("reinforce-baseline", "reinforce++-baseline"),
        ("dr-grpo", "dr_grpo"),
        ("Dr_GRPO", "dr_grpo"),
    ],
)
def test_people_may_type_the_names_they_know(typed, name):
    owner = owner_of("estimators", typed)
    assert owner is not None
    assert owner.name == name


def test_a_name_is_owned_in_its_own_slot_only():
    assert owner_of("losses", "grpo") is None


@given(st.sampled_from([owner.name for owner in FIRST_PARTY if len(owner.name) > 3]), st.data())
def test_one_wrong_letter_still_finds_a_name_that_is_as_near(name, data):
    place = data.draw(st.integers(0, len(name) - 1))
    assert nearest(name[:place] + name[place + 1 :], [name, "quite-another-thing"]) == name


def test_nothing_is_suggested_for_what_resembles_nothing():
    assert nearest("xyzzy", [owner.name for owner in FIRST_PARTY]) is None


def test_no_two_first_party_distributions_differ_by_spelling_only():
    pairs = combinations(sorted(FIRST_PARTY_DISTRIBUTIONS), 2)
    assert [pair for pair in pairs if normalized_dist(pair[0]) == normalized_dist(pair[1])] == []
