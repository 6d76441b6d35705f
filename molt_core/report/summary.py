"""What a run folder tells of its run, in some twenty lines: `molt report`. Pure: records in, lines out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from molt_core.report.cells import cut
from molt_core.report.closing import ledger_lines
from molt_core.report.metrics import mean
from molt_core.report.step_line import counted, duration, number, percent, trend

Record = Mapping[str, Any]
ENDS: Final = 3
"""Steps at each end whose mean is compared."""
BUCKETS: Final = 24
"""Cells of the curve of rewards."""
MOST_EVALS: Final = 12
TIMES: Final = ("generate", "train", "sync", "wait_rollouts", "wait_trainer")


def report_lines(
    plan: Record, metrics: Sequence[Record], ledger: Sequence[Record], checkpoints: Sequence[str], columns: int,
    *, plain: bool = False,
) -> list[str]:  # fmt: skip
    """
    Args:
        plan: of plan.json.
        metrics: of metrics.jsonl: steps, evaluations, lost actors.
        ledger: of ledger.jsonl; only its last line is shown.
        checkpoints: names, oldest first.
        columns: of a line.
        plain: ASCII only.
    """
    steps = [record for record in metrics if "reward/mean" in record]
    evals = [record for record in metrics if "version" in record]
    blocks = (
        _run(plan, steps),
        _rewards(steps, plain),
        _times(steps),
        _evaluations(evals),
        ledger_lines(ledger[-1] if ledger else {}),
        _losses([record["actor"] for record in metrics if "actor" in record]),
    )
    lines = [f"{label:<12}{text}".rstrip() for block in blocks for label, text in block]
    if checkpoints:
        lines.append(f"{'checkpoints':<12}{', '.join(checkpoints)}")
    return [cut(line, columns) for line in lines]


def _run(plan: Record, steps: Sequence[Record]) -> Iterator[tuple[str, str]]:
    run = plan["run"]
    yield "model", f"{run['model']} ({run['dtype']})"
    if "trainers" in plan["parts"]:
        took = duration(_sum(steps, "time/step_s"))
        last = steps[-1]["step"] if steps else 0
        skipped = sum(not math.isfinite(step.get("policy/grad_norm", 0.0)) for step in steps)
        note = f", {skipped} skipped as not finite" if skipped else ""
        yield "steps", f"{last} of {run['steps']} in {took}{note}"


def _rewards(steps: Sequence[Record], plain: bool) -> Iterator[tuple[str, str]]:
    rewards = [step["reward/mean"] for step in steps if math.isfinite(step["reward/mean"])]
    if not rewards:
        return
    span = min(ENDS, len(rewards))
    first, last = number(mean(rewards[:span]), 3), number(mean(rewards[-span:]), 3)
    curve = "" if plain else f"{trend(_buckets(rewards))}  "
    yield "reward", f"{first} -> {last}  {curve}(first and last {counted(span, 'step')})"
    lengths = _mean_of(steps, "rollout/length_mean")
    truncated = percent(_mean_of(steps, "rollout/truncated_rate"))
    stale = max(step.get("staleness/max", math.nan) for step in steps)
    yield (
        "rollouts",
        f"{number(lengths, 1)} tokens, {truncated} truncated, staleness at most {number(stale, 0)}",
    )


def _times(steps: Sequence[Record]) -> Iterator[tuple[str, str]]:
    if not steps:
        return
    parts = [f"{name.replace('_', ' for ')} {number(_mean_of(steps, f'time/{name}_s'), 2)}" for name in TIMES]
    yield (
        "seconds",
        f"{', '.join(parts)}, step {number(_mean_of(steps, 'time/step_s'), 2)}  (means of a step)",
    )
    trained, sampled = (_mean_of(steps, f"tokens/{name}_per_s") for name in ("trained", "sampled"))
    yield "tokens/s", f"{number(trained, 0)} trained, {number(sampled, 0)} sampled"


def _evaluations(evals: Sequence[Record]) -> Iterator[tuple[str, str]]:
    left_out = len(evals) - MOST_EVALS
    shown = evals if left_out <= 0 else [*evals[: MOST_EVALS // 2], *evals[-MOST_EVALS // 2 :]]
    for place, record in enumerate(shown):
        if left_out > 0 and place == MOST_EVALS // 2:
            yield "", f"... {left_out} more in metrics.jsonl"
        newest = record.get("newest_version", record["version"])
        version = f"{record['version']}" if newest == record["version"] else f"{record['version']}-{newest}"
        told = [
            f"{name.removeprefix('eval/')} {number(value, 3)}"
            for name, value in record.items()
            if "/pass@" in name or name.endswith(("/reward_mean", "/num_prompts"))
        ]
        yield (
            "evaluation" if not place else "",
            f"after step {record['step']}, version {version}: {', '.join(told)}",
        )


def _losses(actors: Sequence[str]) -> Iterator[tuple[str, str]]:
    if actors:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(Counter(actors).items()))
        yield "lost", f"{counts}  (times that it died; what it was at was done again)"


def _buckets(values: Sequence[float]) -> list[float]:
    """At most BUCKETS means of neighbours."""
    count = min(BUCKETS, len(values))
    edges = [len(values) * place // count for place in range(count + 1)]
    return [mean(values[start:end]) for start, end in pairwise(edges)]


def _sum(records: Sequence[Record], name: str) -> float:
    return math.fsum(record.get(name, 0.0) for record in records)


def _mean_of(records: Sequence[Record], name: str) -> float:
    return mean([record[name] for record in records if math.isfinite(record.get(name, math.nan))])
