"""Scalars are read back with TensorBoard's own reader."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

from molt_plugin_tracking.spec import TENSORBOARD
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from molt_core.api.events import EvalFinished, RunFinished, RunStarted, StepFinished
from molt_core.plugins.factory import import_object
from molt_core.plugins.hooks import Hooks


def scalars(run_folder: Path) -> dict[str, list[tuple[int, float]]]:
    reader = EventAccumulator(str(run_folder / "tensorboard"))
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]
    }


def test_every_metric_arrives_under_its_name_and_step(tmp_path: Path) -> None:
    observer = import_object(TENSORBOARD.factory)(TENSORBOARD.options(every=2), tmp_path)
    hooks = Hooks([("tensorboard", observer)])
    hooks.notify(EvalFinished(step=0, version=0, metrics={"eval/sums/pass@1": 0.25}, summaries=()))
    for step in range(1, 6):
        hooks.notify(StepFinished(step=step, metrics={"reward/mean": step / 8, "policy/loss": math.inf}))
    hooks.notify(RunFinished(outcome="done", step=5, ledger={}))
    assert hooks.close() == ()
    assert scalars(tmp_path) == {
        "eval/sums/pass@1": [(0, 0.25)],
        "reward/mean": [(2, 0.25), (4, 0.5)],
        "policy/loss": [(2, math.inf), (4, math.inf)],
    }


def session(run_folder: Path, done: int, *told: tuple[str, int], end: bool = False) -> None:
    """One process that works on the run; without `end` it is killed: nothing is closed."""
    observer = import_object(TENSORBOARD.factory)(TENSORBOARD.options(), run_folder)
    hooks = Hooks([("tensorboard (molt-plugin-tracking 0.1.0)", observer)])
    hooks.notify(RunStarted(run_folder=run_folder, plan={}, step=done))
    for what, step in told:
        value = step + done / 64
        hooks.notify(
            StepFinished(step=step, metrics={"reward/mean": value})
            if what == "step"
            else EvalFinished(step=step, version=step, metrics={"eval/sums/pass@1": value}, summaries=())
        )
    if end:
        hooks.notify(RunFinished(outcome="done", step=told[-1][1], ledger={}))
    assert hooks.close() == ()
    # names hold the second of the start and a number; here several start in one second
    files = sorted((run_folder / "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    files[-1].rename(files[-1].with_name(f"events.out.tfevents.{len(files):010d}"))


def test_after_a_kill_each_step_is_there_once_from_the_process_that_counts(tmp_path: Path) -> None:
    session(tmp_path, 0, ("eval", 0), ("step", 1), ("step", 2), ("eval", 2), ("step", 3), ("step", 4))
    session(tmp_path, 2, ("step", 3), ("eval", 3), ("step", 4), ("step", 5))
    session(tmp_path, 4, ("step", 5), ("step", 6), end=True)

    fourth, fifth = (4, 4 + 2 / 64), (5, 5 + 4 / 64)
    assert scalars(tmp_path) == {
        "eval/sums/pass@1": [(0, 0.0), (2, 2.0), (3, 3 + 2 / 64)],
        "reward/mean": [(1, 1.0), (2, 2.0), (3, 3 + 2 / 64), fourth, fifth, (6, 6 + 4 / 64)],
    }


def test_a_run_that_begins_again_replaces_all_of_it(tmp_path: Path) -> None:
    session(tmp_path, 0, ("eval", 0), ("step", 1), ("step", 2))
    session(tmp_path, 0, ("eval", 0), ("step", 1), end=True)

    assert scalars(tmp_path) == {"eval/sums/pass@1": [(0, 0.0)], "reward/mean": [(1, 1.0)]}


def test_an_evaluation_of_the_resumed_step_is_told_once(tmp_path: Path) -> None:
    session(tmp_path, 0, ("step", 1), ("step", 2), ("eval", 2))
    session(tmp_path, 2, ("step", 3), ("eval", 2), ("eval", 3))
    session(tmp_path, 1, ("step", 2))
    session(tmp_path, 2, ("eval", 2), end=True)

    assert scalars(tmp_path) == {
        "eval/sums/pass@1": [(2, 2 + 2 / 64)],
        "reward/mean": [(1, 1.0), (2, 2 + 1 / 64)],
    }


def test_neither_torch_nor_tensorflow_is_loaded() -> None:
    program = (
        "import sys, molt_plugin_tracking.tensorboard; "
        "print([name for name in ('torch', 'tensorflow') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
