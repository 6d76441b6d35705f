"""The last lines of a run: what was learned, a sample before and after, and what to try next. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from molt_core.experience import RolloutSummary
from molt_core.report.cells import cut, visible
from molt_core.report.step_line import duration, number

SPAN: Final = 3
"""Steps at each end whose mean reward is compared."""
HEADINGS: Final = {
    "done": "done",
    "stopped_early": "done early: the reward stayed at its goal",
    "interrupted": "interrupted",
    "failed": "failed",
}


@frozen(kw_only=True)
class Sample:
    """Two replies to one evaluation prompt."""

    prompt: str
    before: RolloutSummary
    after: RolloutSummary


@frozen(kw_only=True)
class Closing:
    outcome: str
    """As in `RunFinished`."""
    error: str = ""
    num_steps: int
    seconds: float
    """In steps; without start and end."""
    rewards: tuple[float, ...]
    """Mean reward of each step."""
    eval_before: Mapping[str, float]
    eval_after: Mapping[str, float]
    """Empty when there was no evaluation after the first."""
    sample: Sample | None
    ledger: Mapping[str, Any]
    checkpoint: str = ""
    next_steps: tuple[tuple[str, str], ...]
    """What for, and the command."""


def choose_sample(before: Sequence[RolloutSummary], after: Sequence[RolloutSummary]) -> Sample | None:
    """The prompt whose reward changed most for the better; evaluations are in one order of prompts."""
    pairs = [
        (old, new)
        for old, new in zip(before, after, strict=False)
        if old.reward is not None and new.reward is not None and old.prompt_text == new.prompt_text
    ]
    if not pairs:
        return None
    old, new = max(pairs, key=lambda pair: (pair[1].reward or 0.0) - (pair[0].reward or 0.0))
    return Sample(prompt=old.prompt_text, before=old, after=new)


def closing_lines(closing: Closing, columns: int) -> list[str]:
    """Lines of at most `columns` cells; commands and paths are never cut."""
    took = f"{closing.num_steps} steps in {duration(closing.seconds)}"
    lines = ["", cut(f"{HEADINGS.get(closing.outcome, closing.outcome)}: {took}", columns)]
    if closing.error:
        lines.append(f"  because     {visible(closing.error)}")
    lines += [cut(f"  {label:<10}  {text}", columns) for label, text in _learned(closing)]
    if closing.sample:
        lines += [cut(line, columns) for line in _sample_lines(closing.sample)]
    if closing.checkpoint:
        lines.append(f"  checkpoint  {closing.checkpoint}")
    if closing.next_steps:
        lines.append("next")
        widest = max(len(purpose) for purpose, _ in closing.next_steps)
        lines += [f"  {purpose:<{widest}}  {command}" for purpose, command in closing.next_steps]
    return lines


def _learned(closing: Closing) -> Iterator[tuple[str, str]]:
    finite = [reward for reward in closing.rewards if math.isfinite(reward)]
    if finite:
        first, last = _mean(finite[:SPAN]), _mean(finite[-SPAN:])
        span = min(SPAN, len(finite))
        yield "reward", f"{number(first, 3)} -> {number(last, 3)}  (mean of the first and last {span} steps)"
    for name, value in closing.eval_after.items():
        kind = name.rpartition("/")[2]
        if kind.startswith("pass@") or kind == "reward_mean":
            yield "evaluation", f"{name}  {number(closing.eval_before.get(name), 3)} -> {number(value, 3)}"
    rollouts = closing.ledger.get("rollouts")
    if rollouts:
        dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(rollouts["dropped"].items()))
        total = sum(rollouts["dropped"].values())
        told = f"{rollouts['dispatched']} rollouts = {rollouts['trained']} trained + {total} dropped"
        told += f" + {rollouts['pending']} pending"
        yield "ledger", f"{told}  ({dropped})" if dropped else told


def _sample_lines(sample: Sample) -> Iterator[str]:
    yield f"  prompt      {visible(sample.prompt)}"
    for label, rollout in (("before", sample.before), ("after", sample.after)):
        yield f"  {label:<10}  reward {number(rollout.reward, 2)}  {visible(rollout.reply_text)}"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
