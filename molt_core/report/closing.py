"""The last lines of a run: what was learned, a sample before and after, and what to try next. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from molt_core.api.events import EvalFinished, RunFinished
from molt_core.report.cells import cut, visible
from molt_core.report.ledger import UNITS
from molt_core.report.metrics import mean
from molt_core.report.step_line import counted, duration, number

SPAN: Final = 3
"""Steps at each end whose mean reward is compared."""
HEADINGS: Final = {
    "done": "done",
    "stopped_early": "done early: the reward stayed at its goal",
    "interrupted": "interrupted",
    "failed": "failed",
}


def closing_lines(
    ended: RunFinished, evals: Sequence[EvalFinished], rewards: Sequence[float], *, seconds: float, num_steps: int,
    checkpoint: str, next_steps: Sequence[tuple[str, str]], columns: int,
) -> list[str]:  # fmt: skip
    """Lines of at most `columns` cells; commands and paths are never cut.

    Args:
        evals: the first and the last are compared.
        rewards: mean reward of each step.
        seconds: in steps; without start and end.
        checkpoint: the last one, as a person would type it; empty without.
        next_steps: what for, and the command.
    """
    took = f"{counted(num_steps, 'step')} in {duration(seconds)}"
    lines = ["", cut(f"{HEADINGS.get(ended.outcome, ended.outcome)}: {took}", columns)]
    if ended.error:
        lines.append(f"  because     {visible(ended.error)}")
    told = [
        *_rewards(rewards),
        *_evaluations(evals),
        *ledger_lines(ended.ledger, ["rollouts"]),
        *_sample(evals),
    ]
    lines += [cut(f"  {label:<10}  {text}", columns) for label, text in told]
    if checkpoint:
        lines.append(f"  checkpoint  {checkpoint}")
    if next_steps:
        lines.append("next")
        widest = max(len(purpose) for purpose, _ in next_steps)
        lines += [f"  {purpose:<{widest}}  {command}" for purpose, command in next_steps]
    return lines


def _rewards(rewards: Sequence[float]) -> Iterator[tuple[str, str]]:
    finite = [reward for reward in rewards if math.isfinite(reward)]
    if finite:
        first, last = mean(finite[:SPAN]), mean(finite[-SPAN:])
        span = counted(min(SPAN, len(finite)), "step")
        yield "reward", f"{number(first, 3)} -> {number(last, 3)}  (mean of the first and last {span})"


def _evaluations(evals: Sequence[EvalFinished]) -> Iterator[tuple[str, str]]:
    if len(evals) < 2:
        return
    before = evals[0].metrics
    for name, value in evals[-1].metrics.items():
        kind = name.rpartition("/")[2]
        if kind.startswith("pass@") or kind == "reward_mean":
            yield "evaluation", f"{name}  {number(before.get(name), 3)} -> {number(value, 3)}"


def ledger_lines(ledger: Mapping[str, Any], units: Sequence[str] = UNITS) -> Iterator[tuple[str, str]]:
    """What became of the units, `Ledger.as_dict`; the first line has the label."""
    for place, unit in enumerate(unit for unit in units if unit in ledger):
        counts = ledger[unit]
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counts["dropped"].items()))
        told = (
            f"{counts['dispatched']} {unit} = {counts['trained']} trained + {sum(counts['dropped'].values())}"
        )
        told += f" dropped + {counts['pending']} pending"
        yield "" if place else "ledger", f"{told}  ({reasons})" if reasons else told


def _sample(evals: Sequence[EvalFinished]) -> Iterator[tuple[str, str]]:
    """The prompt whose reward changed most for the better; evaluations are in one order of prompts."""
    if len(evals) < 2:
        return
    pairs = [
        (old, new)
        for old, new in zip(evals[0].summaries, evals[-1].summaries, strict=False)
        if old.reward is not None and new.reward is not None and old.prompt_text == new.prompt_text
    ]
    if not pairs:
        return
    before, after = max(pairs, key=lambda pair: (pair[1].reward or 0.0) - (pair[0].reward or 0.0))
    yield "prompt", visible(before.prompt_text)
    for label, rollout in (("before", before), ("after", after)):
        yield label, f"reward {number(rollout.reward, 2)}  {visible(rollout.reply_text)}"
