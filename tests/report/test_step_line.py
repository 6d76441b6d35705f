"""The line of a step: golden for each width, and never wider than asked."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molt_core.report.cells import cut, visible, width
from molt_core.report.step_line import duration, progress_bar, step_line, trend

METRICS = {
    "reward/mean": 0.844, "rollout/length_mean": 3.2, "rollout/truncated_rate": 0.031, "staleness/max": 1.0,
    "time/generate_s": 1.12, "time/train_s": 4.0, "time/sync_s": 0.5, "tokens/trained_per_s": 52.3,
}  # fmt: skip
REWARDS = [0.1, 0.2, 0.4, 0.5, 0.4, 0.7, 0.8, 0.844]


def line(columns: int, *, plain: bool = False, **more: float) -> str:
    metrics = METRICS | more
    return step_line(
        12, metrics, num_steps=40, rewards=REWARDS, left_s=161.0, columns=columns, plain=plain
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (
            130,
            "12/40 ██░░░░░░ 2m41s left  reward 0.844 ▁▂▄▅▄▇██  length 3.2  cut 3%  stale 1  "
            "generate 1.1s train 4.0s sync 0.5s  52 tok/s",
        ),
        (
            110,
            "12/40 █░░░░░ 2m41s left  reward 0.84 ▃▁▆▇█  len 3.2 cut 3%  stale 1  "
            "gen 1.1 train 4.0 sync 0.5s  52 tok/s",
        ),
        (
            100,
            "12/40 █░░░ 2m41s left  reward 0.84  len 3.2 cut 3%  stale 1  gen 1.1 train 4.0 sync 0.5s  52 tok/s",
        ),
        (80, "12/40 2m41s left  reward 0.84  len 3.2 cut 3%  stale 1  52 tok/s"),
        (30, "12/40 2m41s left  reward 0...."),
    ],
)
def test_the_line_shows_what_the_width_allows(columns: int, wanted: str) -> None:
    assert line(columns) == wanted


def test_a_hundred_columns_hold_the_stages_of_a_long_run_too() -> None:
    busy = METRICS | {"time/generate_s": 31.2, "time/train_s": 14.0, "rollout/truncated_rate": 1.0}
    shown = step_line(120, busy, num_steps=600, rewards=REWARDS, left_s=11_100.0, columns=100)
    assert "gen 31 train 14 sync 0.5s" in shown


def test_plain_lines_are_ascii() -> None:
    assert line(200, plain=True).isascii()
    assert "##......" in line(200, plain=True)


@given(st.integers(0, 250), st.dictionaries(st.sampled_from([*METRICS]), st.floats(width=32)))
def test_no_line_is_wider_than_asked_whatever_the_numbers(columns: int, metrics: dict[str, float]) -> None:
    rewards = [metrics.get("reward/mean", math.nan)]
    shown = step_line(1, metrics, num_steps=1000, rewards=rewards, left_s=None, columns=columns)
    assert width(shown) <= columns
    assert "\n" not in shown


def test_drops_and_a_skipped_step_are_said() -> None:
    assert line(200, **{"rollout/dropped/timeout": 2.0, "rollout/dropped/stale": 1.0}).endswith("dropped 3")
    assert line(200, **{"policy/loss": math.nan}).endswith("SKIPPED: not finite")


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(0, "0s"), (59.4, "59s"), (60, "1m00s"), (161, "2m41s"), (11_100, "3h05m"), (183_600, "2d03h")],
)
def test_durations(seconds: float, wanted: str) -> None:
    assert duration(seconds) == wanted


def test_a_flat_trend_is_low_and_noise_is_not_blown_up() -> None:
    assert trend([0.5, 0.5, 0.5]) == "▁▁▁"
    assert trend([0.50, 0.51]) == "▁▂"
    assert trend([0.0, math.nan, 1.0]) == "▁ █"
    assert trend([]) == ""


def test_the_bar_is_full_at_the_end_and_only_there() -> None:
    assert progress_bar(1.0, 8) == "█" * 8
    assert progress_bar(99 / 100, 8) == "█" * 7 + "░"
    assert progress_bar(0.3 + 0.3 + 0.4, 10) == "█" * 10


def test_control_characters_are_written_out() -> None:
    assert visible("a\nb\x1b[2Jc\u202ed\u2028") == r"a\nb\x1b[2Jc\u202ed\u2028"


@given(st.text(), st.integers(0, 40))
def test_cut_text_fits(text: str, columns: int) -> None:
    shown = cut(visible(text), columns)
    assert width(shown) <= columns
    assert shown == visible(text) or shown.endswith("."[:columns])


def test_wide_characters_count_twice() -> None:
    assert width("数学") == 4
    assert cut("数学数学", 7) == "数学..."
