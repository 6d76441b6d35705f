"""The table and the episode records of an evaluation, on paper."""

from __future__ import annotations

import json
import math

from molt_core.experience import Outcome, RolloutSummary
from molt_core.report.evaluation import episode, evaluation_lines
from molt_core.report.json_lines import to_line
from molt_core.report.metrics import eval_metrics


def reply(prompt: int, sample: int, reward: float | None, outcome=Outcome.FINISHED, **more) -> RolloutSummary:
    fields = {
        "rollout_id": f"eval-{prompt}-{sample}", "group_id": f"eval-{prompt}", "outcome": outcome, "reward": reward,
        "reason": "", "detail": "", "segment_tokens": (9, 3), "segment_sampled": (4, 2), "oldest_version": 0,
        "newest_version": 0, "info": {}, "prompt_text": "p", "reply_text": "r", "seconds": 1.23456,
    }  # fmt: skip
    return RolloutSummary(**(fields | more))


def table(*replies: RolloutSummary) -> list[str]:
    metrics = eval_metrics(replies, name="s")
    return evaluation_lines(
        replies, {key.removeprefix("eval/s/"): value for key, value in metrics.items()}, 100
    )


def test_the_table_counts_failures_beside_the_grades() -> None:
    lines = table(
        reply(0, 0, 1.0, info={"format": 1.0}), reply(0, 1, 0.0, Outcome.TRUNCATED),
        reply(1, 0, 0.0), reply(1, 1, None, Outcome.FAILED, reason="reward_error", detail="KeyError: 'x'\n(r.py:3)"),
        reply(2, 0, None, Outcome.ABSTAINED, reason="abstained"), reply(2, 1, None, Outcome.FAILED, reason="timeout"),
    )  # fmt: skip
    assert lines == [
        "  pass@1          0.250  2 of 3 prompts",
        "  pass@2          1.000  1 of 3 prompts",
        "  avg@2           0.250  2 of 3 prompts",
        "  reward mean     0.333  3 of 6 episodes",
        "  tokens mean       6.0  3 of 6 episodes",
        "  truncated         17%  1 of 6 episodes",
        "  failed            33%  2 of 6 episodes: 1 reward_error, 1 timeout",
        "  abstained         17%  1 of 6 episodes: 1 abstained",
        "  env/format      1.000  mean of those that report it",
        r"  first failure: eval-1-1: reward_error: KeyError: 'x'\n(r.py:3)",
    ]


def test_long_names_widen_the_column() -> None:
    lines = table(reply(0, 0, 1.0, info={"side_calls_of_mine": 2.0}))
    assert "  env/side_calls_of_mine     2.000  mean of those that report it" in lines
    assert "  pass@1                     1.000  1 prompt" in lines


def test_an_evaluation_in_which_nothing_was_graded_has_no_numbers() -> None:
    lines = table(reply(0, 0, None, Outcome.FAILED, reason="timeout"))
    assert lines[:2] == ["  pass@1              -  0 of 1 prompt", "  avg@1               -  0 of 1 prompt"]


def test_an_episode_is_json_whatever_the_columns_hold() -> None:
    summary = reply(0, 1, 0.5, info={"odd": math.nan}, left_out_tokens={"orphan": 3})
    row = {"messages": [{"role": "user", "content": "p", "at": object}]}
    record = json.loads(
        to_line(episode("eval/000000", row, 1, summary, {"reply": "whole", "segments": ["<s>p"]}))
    )
    assert record["episode"] == "eval-0-1"
    assert (record["task_id"], record["sample"], record["reward"]) == ("eval/000000", 1, 0.5)
    assert (record["num_tokens"], record["num_segments"], record["left_out_tokens"]) == (6, 2, {"orphan": 3})
    assert (record["prompt"], record["reply"], record["segments"]) == ("p", "whole", ["<s>p"])
    assert record["info"] == {"odd": None}
    assert record["messages"][0]["role"] == "user"
