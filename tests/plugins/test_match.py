from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from molt_core.plugins.match import is_shadowed, matching
from molt_core.plugins.names import FIRST_PARTY, normalized
from molt_core.plugins.scan import Candidate, Scan

DISTS = st.sampled_from(["acme", "zeta-rl", "molt-plugin-estimators", "molt-plugins-moe"])
NAMES = st.sampled_from(["grpo", "dr_grpo", "dr-grpo", "reinforce++", "reinforce", "rank", "my_rank", "best"])
CANDIDATES = st.builds(Candidate, st.just("estimators"), NAMES, DISTS, st.just("1.0"), st.just("m:A"))


def distinct(candidates):
    """As a scan leaves them: one of each name in a distribution, sorted."""
    return tuple(sorted({(one.dist, normalized(one.name)): one for one in candidates}.values()))


SCANS = st.lists(CANDIDATES, max_size=8).map(lambda found: Scan(distinct(found)))


@given(SCANS)
def test_dist_and_name_always_mean_exactly_that_candidate(installed):
    for candidate in installed.candidates:
        if candidate.dist != "molt-plugin-estimators" or candidate.name != "reinforce":
            assert matching(installed, "estimators", candidate.qualified) == (candidate,)


@given(SCANS, CANDIDATES)
def test_installing_a_stranger_never_changes_what_a_first_party_name_means(installed, newcomer):
    if newcomer.dist.startswith("molt-"):
        return
    more = Scan(distinct([*installed.candidates, newcomer]))
    for owner in FIRST_PARTY:
        for spelling in (owner.name, *owner.aliases):
            assert matching(more, "estimators", spelling) == matching(installed, "estimators", spelling)


@given(SCANS, NAMES)
def test_case_and_underscores_of_a_name_do_not_matter(installed, name):
    other = name.upper().replace("-", "_")
    assert matching(installed, "estimators", name) == matching(installed, "estimators", other)


@given(SCANS)
def test_several_answers_are_strangers_only(installed):
    for candidate in installed.candidates:
        found = matching(installed, "estimators", candidate.name)
        if len(found) > 1 and all(one.dist != "molt-plugins-moe" for one in found):
            assert {one.dist for one in found} <= {"acme", "zeta-rl"}


def test_a_first_party_name_that_the_table_does_not_know_yet_still_beats_a_stranger():
    ours = Candidate("estimators", "brand-new", "molt-plugins-moe", "0.2", "m:A")
    theirs = Candidate("estimators", "brand-new", "acme", "1.0", "a:B")
    installed = Scan((theirs, ours))
    assert matching(installed, "estimators", "brand-new") == (ours,)
    assert is_shadowed(installed, theirs)
    assert not is_shadowed(installed, ours)


def test_a_stranger_that_takes_an_owned_name_is_shadowed_even_when_the_owner_is_missing():
    theirs = Candidate("estimators", "grpo", "acme", "1.0", "a:GRPO")
    assert matching(Scan((theirs,)), "estimators", "grpo") == ()
    assert is_shadowed(Scan((theirs,)), theirs)
