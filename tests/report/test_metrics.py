"""Golden values of the metrics, worked out by hand, and the table that defines them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molt_core.experience import Group, Outcome, RolloutSummary
from molt_core.report.metrics import _std, eval_metrics, pass_at_k, shown_k, step_metrics


def rollout(
    reward: float | None,
    *,
    group: str = "0",
    sampled=(3,),
    oldest=0,
    outcome=Outcome.FINISHED,
    info=None,
    left_out=None,
) -> RolloutSummary:
    return RolloutSummary(
        rollout_id="r", group_id=group, outcome=outcome, reward=reward, reason="", detail="",
        segment_tokens=tuple(count + 5 for count in sampled), segment_sampled=tuple(sampled),
        oldest_version=oldest, newest_version=oldest, info=info or {}, prompt_text="", reply_text="", seconds=0.0,
        left_out_tokens=left_out or {},
    )  # fmt: skip


def group(*rollouts: RolloutSummary) -> Group:
    return Group(group_id="0", task_id="t", index=0, dispatched_at_version=0, rollouts=rollouts)


FAILED = rollout(None, sampled=(), oldest=None, outcome=Outcome.FAILED)
ABSTAINED = rollout(None, sampled=(50,), outcome=Outcome.ABSTAINED, info={"format": 0.0})


def test_a_step_by_hand() -> None:
    groups = [
        group(
            rollout(1.0, sampled=(4, 0, 2), oldest=2, info={"format": 1.0}, left_out={"orphan": 6}),
            rollout(0.0, sampled=(3,), oldest=3),
        ),
        group(rollout(0.5, sampled=(9,), oldest=3, outcome=Outcome.TRUNCATED), FAILED, ABSTAINED),
    ]
    assert step_metrics(groups, version=4) == pytest.approx(
        {
            "reward/mean": 0.5,
            "reward/std": math.sqrt(1 / 6),
            "rollout/length_mean": 6.0,
            "rollout/segments_mean": 4 / 3,
            "rollout/left_out/orphan": 2.0,
            "rollout/truncated_rate": 1 / 3,
            "staleness/mean": 4 / 3,
            "staleness/max": 2.0,
            "env/format": 1.0,
        }
    )


def test_a_step_with_nothing_to_train_on_has_no_numbers_rather_than_zeros() -> None:
    assert all(math.isnan(value) for value in step_metrics([group(FAILED, ABSTAINED)], version=0).values())


def test_splitting_a_rollout_into_segments_changes_nothing_but_their_number() -> None:
    whole = [group(rollout(1.0, sampled=(6,)), rollout(0.0, sampled=(2,)))]
    split = [group(rollout(1.0, sampled=(1, 2, 3)), rollout(0.0, sampled=(2,)))]
    one, several = step_metrics(whole, version=1), step_metrics(split, version=1)
    assert (one.pop("rollout/segments_mean"), several.pop("rollout/segments_mean")) == (1.0, 2.0)
    assert one == several


def test_an_evaluation_by_hand() -> None:
    replies = [
        rollout(1.0, group="a", sampled=(2,)),
        rollout(0.0, group="a", sampled=(4,)),
        rollout(0.0, group="b", sampled=(3,), outcome=Outcome.TRUNCATED),
        rollout(0.5, group="b", sampled=(3,)),
        rollout(1.0, group="c", sampled=(8,)),
        rollout(None, group="c", outcome=Outcome.FAILED),
    ]
    assert eval_metrics(replies, name="sums") == pytest.approx(
        {
            "eval/sums/pass@1": (0.5 + 0.0 + 1.0) / 3,
            "eval/sums/pass@2": (1.0 + 0.0) / 2,
            "eval/sums/avg@2": (0.5 + 0.25 + 1.0) / 3,
            "eval/sums/reward_mean": 0.5,
            "eval/sums/length_mean": 4.0,
            "eval/sums/truncated_rate": 0.2,
            "eval/sums/num_prompts": 3.0,
            "eval/sums/num_dropped": 1.0,
            "eval/sums/failed_rate": 1 / 6,
            "eval/sums/abstained_rate": 0.0,
        }
    )


def test_pass_at_k_is_shown_for_powers_of_two_and_for_all_replies() -> None:
    assert [shown_k(number) for number in (0, 1, 6, 8)] == [[1], [1], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_what_was_graded_without_a_token_counts_in_an_evaluation() -> None:
    replies = [rollout(1.0, sampled=(), oldest=None), rollout(0.0)]
    assert eval_metrics(replies, name="e")["eval/e/reward_mean"] == 0.5


def test_an_evaluation_in_which_all_failed_says_so() -> None:
    metrics = eval_metrics([FAILED, FAILED], name="e")
    assert metrics["eval/e/num_dropped"] == 2.0
    assert math.isnan(metrics["eval/e/pass@1"])


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_solved_reply(case: tuple[int, int, int]) -> None:
    from itertools import combinations

    num_samples, num_solved, k = case
    subsets = list(combinations([True] * num_solved + [False] * (num_samples - num_solved), k))
    assert pass_at_k(num_samples, num_solved, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_every_metric_is_defined_in_the_documentation() -> None:
    table = Path(__file__).parents[2].joinpath("docs/metrics.md").read_text(encoding="utf-8")
    defined = re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)
    assert len(defined) == len(set(defined))
    patterns = [
        re.escape(name)
        .replace("<set>", "[^/]+")
        .replace("<key>", ".+")
        .replace("<reason>", ".+")
        .replace("@k", r"@\d+")
        for name in defined
    ]
    emitted = {*step_metrics([group(rollout(1.0, info={"x": 1.0}, left_out={"x": 1}))], version=0)}
    emitted |= {*eval_metrics([rollout(1.0, info={"x": 1.0})], name="s")}
    for name in emitted:
        assert any(re.fullmatch(pattern, name) for pattern in patterns), name


def test_the_spread_of_huge_rewards_does_not_overflow() -> None:
    assert _std([1e300, -1e300]) == pytest.approx(1e300)
