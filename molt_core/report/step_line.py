"""The line of one optimizer step, for people. Pure: numbers in, one line of text out.

 12/40 ███░░░░░ 2m41s left  reward 0.844 ▁▃▅▇  length 3.2  cut 0%  stale 0  generate 1.1s train 4.0s sync 0.5s  52 tok/s

What does not fit the terminal is left out, the least important first; the line never wraps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from molt_core.report.cells import cut, width

BLOCKS: Final = "▁▂▃▄▅▆▇█"
TREND_STEPS: Final = 8
DETAIL_COLUMNS: Final = (90, 110, 130)
"""Widths from which more is shown. Fixed, so that the lines of a run look alike."""
STAGES: Final = (("generate", "gen"), ("train", "train"), ("sync", "sync"))


def step_line(
    step: int,
    metrics: Mapping[str, float],
    *,
    num_steps: int,
    rewards: Sequence[float],
    left_s: float | None,
    columns: int,
    plain: bool = False,
) -> str:
    """One line of at most `columns` cells.

    Args:
        metrics: of the step, by the names of docs/metrics.md.
        rewards: mean rewards of all steps so far, this one last.
        left_s: seconds until the last step, where known.
        plain: ASCII only.
    """
    richest = sum(columns >= least for least in DETAIL_COLUMNS)
    for detail in range(richest, -1, -1):
        parts = _parts(step, metrics, num_steps, rewards, left_s, detail, plain)
        line = "  ".join(part for part in parts if part)
        if width(line) <= columns:
            return line
    return cut(line, columns)


def _parts(
    step: int, metrics: Mapping[str, float], num_steps: int, rewards: Sequence[float],
    left_s: float | None, detail: int, plain: bool,
) -> Iterator[str]:  # fmt: skip
    """Detail 3 shows everything, 0 the least."""
    short = detail < 3
    head = f"{step:>{len(str(num_steps))}}/{num_steps}"
    cells = (0, 4, 6, 8)[detail]
    bar = progress_bar(step / num_steps, cells, plain=plain) if cells else ""
    left = "" if left_s is None else f"{duration(left_s)} left"
    yield " ".join(part for part in (head, bar, left) if part)
    reward = f"reward {number(metrics.get('reward/mean'), 2 if short else 3)}"
    shown = (0, 0, 5, TREND_STEPS)[detail]
    yield f"{reward} {trend(rewards[-shown:])}" if shown and not plain else reward
    length = number(metrics.get("rollout/length_mean"), 1)
    truncated = f"cut {percent(metrics.get('rollout/truncated_rate'))}"
    yield f"len {length} {truncated}" if short else f"length {length}  {truncated}"
    yield f"stale {number(metrics.get('staleness/max'), 0)}"
    if detail:
        seconds = [
            f"{brief if short else name} {_seconds(metrics.get(f'time/{name}_s'))}" for name, brief in STAGES
        ]
        yield (" ".join(seconds) if short else "s ".join(seconds)) + "s"
    yield f"{number(metrics.get('tokens/trained_per_s'), 0)} tok/s"
    dropped = sum(count for name, count in metrics.items() if name.startswith("rollout/dropped/"))
    yield f"dropped {dropped:.0f}" if dropped else ""
    # the trainer leaves its weights as they are after such a step
    sound = all(math.isfinite(metrics.get(name, 0.0)) for name in ("policy/loss", "policy/grad_norm"))
    yield "" if sound else "SKIPPED: not finite"


def trend(values: Sequence[float]) -> str:
    """Heights of the values between their least and greatest, at least 0.1 apart; a gap where not finite."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low = min(finite)
    scale = (len(BLOCKS) - 1) / max(max(finite) - low, 0.1)
    return "".join(BLOCKS[round((value - low) * scale)] if math.isfinite(value) else " " for value in values)


def progress_bar(share: float, cells: int, *, plain: bool = False) -> str:
    full, empty = ("#", ".") if plain else ("█", "░")
    done = min(cells, int(share * cells + 1e-9))
    return full * done + empty * (cells - done)


def duration(seconds: float) -> str:
    """`42s`, `2m41s`, `3h05m`, `2d03h`."""
    whole = max(0, round(seconds))
    for unit, size, next_unit, next_size in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // next_size:02d}{next_unit}"
    return f"{whole}s"


def _seconds(value: float | None) -> str:
    return number(value, 0 if value is not None and value >= 9.95 else 1)


def number(value: float | None, digits: int) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.{digits}f}"


def counted(count: int, one: str, many: str = "") -> str:
    """`1 step`, `2 steps`, `2 replies`."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def percent(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.0%}"
