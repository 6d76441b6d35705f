"""Records come back as they were written, after a kill too."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from molt_core.api.events import ActorDied, EvalFinished, RunFinished, RunStarted, StepFinished
from molt_core.report.json_lines import JsonLines, read_json_lines, to_line
from molt_core.report.metrics_file import MetricsFile


def test_values_that_are_not_finite_become_null_and_come_back(tmp_path: Path) -> None:
    record = {"step": 1, "a": math.nan, "b": -math.inf, "c": np.float32(math.inf), "d": np.float32(0.5)}
    line = to_line(record)
    assert json.loads(line) == {
        "step": 1, "a": None, "b": None, "c": None, "d": 0.5,
        "nonfinite": {"a": "nan", "b": "-inf", "c": "inf"},
    }  # fmt: skip
    (tmp_path / "m.jsonl").write_text(line)
    (back,) = read_json_lines(tmp_path / "m.jsonl")
    assert math.isnan(back.pop("a"))
    assert back == {"step": 1, "b": -math.inf, "c": math.inf, "d": 0.5}


def test_each_record_is_on_disk_as_soon_as_it_is_written(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "m.jsonl")
    lines.write({"step": 1})
    assert read_json_lines(tmp_path / "m.jsonl") == [{"step": 1}]
    lines.close()
    lines.close()


def test_a_cut_off_last_line_is_ignored_by_readers_and_removed_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "rew')
    assert read_json_lines(path) == [{"step": 1}]
    lines = JsonLines(path)
    lines.write({"step": 2})
    lines.close()
    assert read_json_lines(path) == [{"step": 1}, {"step": 2}]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"m\.jsonl:2: "):
        read_json_lines(path)


def test_separators_inside_strings_do_not_end_a_line(tmp_path: Path) -> None:
    record = {"text": "a\u2028b\x85c\nd"}
    lines = JsonLines(tmp_path / "m.jsonl")
    lines.write(record)
    lines.close()
    assert read_json_lines(tmp_path / "m.jsonl") == [record]


def test_metrics_file_has_a_line_for_each_step_and_evaluation_and_for_nothing_else(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.on_event(EvalFinished(step=0, version=0, metrics={"eval/e/pass@1": 0.5}, summaries=()))
    file.on_event(StepFinished(step=1, metrics={"reward/mean": 0.25}))
    file.on_event(RunFinished(outcome="done", step=1, ledger={}))
    file.close()
    assert read_json_lines(tmp_path / "metrics.jsonl") == [
        {"step": 0, "version": 0, "newest_version": 0, "eval/e/pass@1": 0.5},
        {"step": 1, "reward/mean": 0.25},
    ]


def test_a_lost_actor_stands_after_the_step_before_it_also_when_a_run_was_resumed(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.on_event(RunStarted(run_folder=tmp_path, plan={}, step=7))
    file.on_event(ActorDied(name="engine-0", cause="engine-0 died", restart_in_s=2.0))
    file.on_event(StepFinished(step=8, metrics={"reward/mean": 1.0}))
    file.on_event(ActorDied(name="worker-1", cause="worker-1 died", restart_in_s=None))
    file.close()

    assert [(line["step"], line.get("actor")) for line in read_json_lines(tmp_path / "metrics.jsonl")] == [
        (7, "engine-0"), (8, None), (8, "worker-1"),
    ]  # fmt: skip
