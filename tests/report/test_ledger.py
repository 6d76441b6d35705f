"""The books balance whatever happens, and an entry that can't be is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molt_core.errors import RunError
from molt_core.report.json_lines import read_json_lines
from molt_core.report.ledger import UNITS, Ledger

COUNTS = st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(0, 400))
ENTRIES = st.lists(st.tuples(st.sampled_from(["dispatch", "train", "stale", "timeout"]), COUNTS), max_size=30)


def enter(ledger: Ledger, kind: str, counts: tuple[int, int, int]) -> None:
    named = dict(zip(("num_prompts", "num_rollouts", "num_tokens"), counts, strict=True))
    if kind in ("dispatch", "train"):
        getattr(ledger, kind)(**named)
    else:
        ledger.drop(kind, **named)


def balances(ledger: Ledger) -> bool:
    return all(
        entry["dispatched"] == entry["trained"] + sum(entry["dropped"].values()) + entry["pending"]
        and entry["pending"] >= 0
        for entry in ledger.as_dict().values()
    )


@given(ENTRIES)
def test_every_accepted_entry_keeps_the_balance(entries: list[tuple[str, tuple[int, int, int]]]) -> None:
    ledger = Ledger()
    pending = [0, 0, 0]
    for kind, counts in entries:
        sign = 1 if kind == "dispatch" else -1
        pending = [have + sign * count for have, count in zip(pending, counts, strict=True)]
        if min(pending) < 0:
            with pytest.raises(RunError, match="does not balance"):
                enter(ledger, kind, counts)
            return
        enter(ledger, kind, counts)
        assert balances(ledger)
        assert [ledger.as_dict()[unit]["pending"] for unit in UNITS] == pending


@given(ENTRIES)
def test_counts_survive_json_and_nothing_stays_pending_at_the_end(
    entries: list[tuple[str, tuple[int, int, int]]],
) -> None:
    ledger = Ledger()
    ledger.dispatch(num_prompts=200, num_rollouts=2000, num_tokens=20000)
    for kind, counts in entries:
        enter(ledger, kind, counts)
    again = Ledger()
    again.restore(json.loads(json.dumps(ledger.as_dict())))
    assert again.as_dict() == ledger.as_dict()
    again.drop_pending("run_ended")
    assert balances(again)
    assert {entry["pending"] for entry in again.as_dict().values()} == {0}


def test_what_is_trained_twice_is_refused() -> None:
    ledger = Ledger()
    ledger.dispatch(num_prompts=1, num_rollouts=8)
    ledger.train(num_prompts=1, num_rollouts=8)
    with pytest.raises(RunError, match="rollouts dispatched 8, trained 16"):
        ledger.train(num_rollouts=8)


def test_a_group_that_got_lost_shows_when_compared_with_what_is_held() -> None:
    ledger = Ledger()
    ledger.dispatch(num_prompts=2, num_rollouts=16)
    ledger.check(num_prompts=2, num_rollouts=16)
    with pytest.raises(RunError, match="pending is 16, wanted 8"):
        ledger.check(num_prompts=2, num_rollouts=8)


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Ledger().dispatch(num_rollouts=-1)


def test_drop_metrics_count_since_the_last_line_and_the_file_since_the_start(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.dispatch(num_rollouts=10)
    ledger.drop("timeout", num_rollouts=2)
    assert ledger.drop_metrics() == {"rollout/dropped/timeout": 2.0}
    ledger.write(1)
    assert ledger.drop_metrics() == {}
    ledger.drop("timeout", num_rollouts=1)
    assert ledger.drop_metrics() == {"rollout/dropped/timeout": 1.0}
    ledger.write(2)
    ledger.close()
    lines = read_json_lines(tmp_path / "ledger.jsonl")
    assert [(line["step"], line["rollouts"]["dropped"]) for line in lines] == [
        (1, {"timeout": 2}),
        (2, {"timeout": 3}),
    ]
