"""What `molt eval` leaves and shows: a record of each episode, and a table. Pure.

What failed or abstained is counted beside the grades, never among them as a reward of 0.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from molt_core.api.environment import Row
from molt_core.experience import Outcome, RolloutSummary
from molt_core.report.cells import cut, visible
from molt_core.report.metrics import shown_k
from molt_core.report.step_line import counted, number, percent


def episode(
    task_id: str, row: Row, sample: int, summary: RolloutSummary, texts: Mapping[str, Any]
) -> dict[str, Any]:
    """One line of episodes.jsonl.

    Args:
        sample: number of the reply to this task, from 0.
        texts: `prompt`, `reply` and `segments` in full, where something was sampled.
    """
    messages = row.get("messages")
    return {
        "episode": summary.rollout_id,
        "task_id": task_id,
        "sample": sample,
        "reward": summary.reward,
        "outcome": str(summary.outcome),
        "reason": summary.reason,
        "detail": summary.detail,
        "num_tokens": summary.num_sampled,
        "num_segments": len(summary.segment_tokens),
        "left_out_tokens": dict(summary.left_out_tokens),
        "info": {key: value if math.isfinite(value) else None for key, value in summary.info.items()},
        "seconds": round(summary.seconds, 3),
        # of columns, what JSON does not know is written as text
        **({"messages": json.loads(json.dumps(messages, default=str))} if messages is not None else {}),
        "prompt": summary.prompt_text,
        "reply": summary.reply_text,
        "segments": [],
        **texts,
    }


def evaluation_lines(
    summaries: Sequence[RolloutSummary], metrics: Mapping[str, float], columns: int
) -> list[str]:
    """The table, and the first failure in full.

    Args:
        metrics: of `eval_metrics`, by the last part of their names.
    """
    cells = list(_cells(summaries, metrics))
    widest = max(13, *(len(label) + 2 for label, _, _ in cells))
    lines = [cut(f"  {label:<{widest}}{value:>8}  {of}".rstrip(), columns) for label, value, of in cells]
    failure = next((summary for summary in summaries if summary.outcome is Outcome.FAILED), None)
    if failure is not None:
        lines.append(f"  first failure: {failure.rollout_id}: {failure.reason}: {visible(failure.detail)}")
    return lines


def _cells(
    summaries: Sequence[RolloutSummary], metrics: Mapping[str, float]
) -> Iterator[tuple[str, str, str]]:
    graded = Counter(summary.group_id for summary in summaries if summary.reward is not None)
    num_prompts, num_episodes = len({summary.group_id for summary in summaries}), len(summaries)
    most = max(graded.values(), default=0)
    for k in shown_k(most):
        enough = sum(count >= k for count in graded.values())
        yield f"pass@{k}", number(metrics[f"pass@{k}"], 3), _of(enough, num_prompts, "prompt")
    average = f"avg@{max(most, 1)}"
    yield average, number(metrics[average], 3), _of(len(graded), num_prompts, "prompt")
    num_graded = graded.total()
    yield "reward mean", number(metrics["reward_mean"], 3), _of(num_graded, num_episodes, "episode")
    yield "tokens mean", number(metrics["length_mean"], 1), _of(num_graded, num_episodes, "episode")
    for outcome in (Outcome.TRUNCATED, Outcome.FAILED, Outcome.ABSTAINED):
        so = [summary for summary in summaries if summary.outcome is outcome]
        reasons = Counter(summary.reason for summary in so if summary.reason).most_common()
        why = f": {', '.join(f'{count} {reason}' for reason, count in reasons)}" if reasons else ""
        yield (
            str(outcome),
            percent(len(so) / max(num_episodes, 1)),
            f"{_of(len(so), num_episodes, 'episode')}{why}",
        )
    for name, value in metrics.items():
        if name.startswith("env/"):
            yield name, number(value, 3), "mean of those that report it"


def _of(count: int, total: int, what: str) -> str:
    return counted(total, what) if count == total else f"{count} of {counted(total, what)}"
