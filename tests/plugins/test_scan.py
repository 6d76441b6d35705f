from __future__ import annotations

import subprocess
import sys

import pytest

from molt_core.plugins.scan import Candidate, scan

RANK = {"molt_core.estimators": {"rank": "acme_spec:RANK"}}


def codes(found):
    return [finding.code for finding in found.findings]


def test_candidates_are_sorted_and_carry_distribution_version_and_value(site, fake_dist):
    fake_dist("Zeta_RL", "2.0", entry_points={"molt_core.estimators": {"rank": "zeta:RANK"}})
    fake_dist(
        "acme.rl", "0.3", entry_points={"molt_core.estimators": {"rank": "acme:RANK", "best": "acme:BEST"}}
    )
    fake_dist("other", entry_points={"console_scripts": {"rank": "other:main"}})
    assert scan([str(site)]).candidates == (
        Candidate("estimators", "best", "acme-rl", "0.3", "acme:BEST"),
        Candidate("estimators", "rank", "acme-rl", "0.3", "acme:RANK"),
        Candidate("estimators", "rank", "zeta-rl", "2.0", "zeta:RANK"),
    )
    assert scan([str(site)]).findings == ()


def test_names_with_plus_and_underscore_survive(site, fake_dist):
    fake_dist("acme", entry_points={"molt_core.estimators": {"reinforce++": "a:B", "dr_grpo": "a:C"}})
    assert [one.name for one in scan([str(site)]).candidates] == ["dr_grpo", "reinforce++"]


def test_scanning_imports_no_plugin(site, fake_dist):
    fake_dist("acme", entry_points=RANK, modules={"acme_spec": "raise RuntimeError('imported')"})
    assert len(scan([str(site)]).candidates) == 1
    assert "acme_spec" not in sys.modules


def test_a_distribution_on_two_paths_counts_once_and_the_first_path_wins(site, fake_dist, tmp_path):
    fake_dist("acme", "1.0", entry_points=RANK)
    fake_dist("acme", "2.0", entry_points=RANK, folder=tmp_path / "later")
    found = scan([str(site), str(tmp_path / "later")])
    assert [one.version for one in found.candidates] == ["1.0"]
    assert codes(found) == ["M111"]
    assert [source.origin for source in found.findings[0].because] == [str(site), str(tmp_path / "later")]


def test_what_the_first_copy_no_longer_offers_is_not_offered(site, fake_dist, tmp_path):
    fake_dist("acme", "2.0")
    fake_dist("acme", "1.0", entry_points=RANK, folder=tmp_path / "later")
    assert scan([str(site), str(tmp_path / "later")]).candidates == ()


def test_an_egg_info_beside_an_equal_dist_info_is_no_matter(site, fake_dist, tmp_path):
    fake_dist("acme", entry_points=RANK)
    fake_dist("acme", entry_points=RANK, folder=tmp_path / "src", kind="egg-info")
    found = scan([str(site), str(tmp_path / "src"), str(site)])
    assert len(found.candidates) == 1
    assert found.findings == ()


def test_of_a_leftover_in_the_same_folder_the_higher_version_wins_by_number(site, fake_dist):
    fake_dist("acme", "0.9", entry_points=RANK)
    fake_dist("acme", "0.10", entry_points=RANK)
    found = scan([str(site)])
    assert [one.version for one in found.candidates] == ["0.10"]
    assert codes(found) == ["M111"]


def test_one_name_in_two_spellings_of_one_distribution_is_reported_and_counts_once(site, fake_dist):
    fake_dist("acme", entry_points={"molt_core.envs": {"my_env": "a:A", "my-env": "a:B"}})
    found = scan([str(site)])
    assert [one.value for one in found.candidates] == ["a:B"]
    assert codes(found) == ["M112"]


def test_half_a_metadata_folder_is_reported_and_skipped(site, fake_dist):
    info = fake_dist("acme", entry_points=RANK)
    (info / "METADATA").unlink()
    fake_dist("zeta", entry_points={"molt_core.envs": {"maze": "z:MAZE"}})
    found = scan([str(site)])
    assert [one.dist for one in found.candidates] == ["zeta"]
    assert codes(found) == ["M113"]


def test_unreadable_entry_points_harm_only_their_own_distribution(site, fake_dist):
    (fake_dist("acme") / "entry_points.txt").write_text("[molt_core.estimators]\nno equals sign\n")
    (fake_dist("binary") / "entry_points.txt").write_bytes(b"\xff\xfe\x00molt_core")
    fake_dist("zeta", entry_points={"molt_core.envs": {"maze": "z:MAZE"}})
    found = scan([str(site)])
    assert [one.dist for one in found.candidates] == ["zeta"]
    assert codes(found) == ["M114"]


def test_an_unknown_slot_is_reported_with_the_nearest(site, fake_dist):
    fake_dist("acme", entry_points={"molt_core.estimator": {"rank": "a:RANK"}})
    found = scan([str(site)])
    assert found.candidates == ()
    assert codes(found) == ["M115"]
    assert "'estimators'" in found.findings[0].fix


@pytest.mark.parametrize("name", ["Rank", "my rank", "a/b", "-x"])
def test_names_outside_the_alphabet_are_reported_and_skipped(site, fake_dist, name):
    fake_dist("acme", entry_points={"molt_core.estimators": {name: "a:RANK"}})
    found = scan([str(site)])
    assert found.candidates == ()
    assert codes(found) == ["M116"]


def test_a_folder_that_is_not_installed_is_not_found(site):
    (site / "molt_plugin_ghost").mkdir()
    (site / "molt_plugin_ghost" / "spec.py").write_text("")
    assert scan([str(site)]).candidates == ()


def test_the_scan_of_a_process_is_made_once(site, fake_dist):
    fake_dist("acme", entry_points=RANK)
    assert scan([str(site)]) is scan([str(site)])


def test_our_own_parts_come_through_entry_points_like_everyone_elses():
    values = {(one.slot, one.name): one.value for one in scan().candidates if one.dist == "molt-core"}
    assert values["executors", "local"] == "molt_core.launch.specs:LOCAL"


def test_scanning_twice_in_two_processes_gives_one_order():
    code = "from molt_core.plugins.scan import scan; print(scan().candidates)"
    outputs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)
    }
    assert len(outputs) == 1


def test_a_metadata_folder_that_does_not_bear_its_own_name_is_still_found(site, fake_dist):
    fake_dist("acme", entry_points=RANK).rename(site / "renamed-1.0.dist-info")
    assert [one.dist for one in scan([str(site)]).candidates] == ["acme"]
