"""Scalars are read back with TensorBoard's own reader."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

from molt_plugin_tracking.spec import TENSORBOARD
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from molt_core.api.events import EvalFinished, RunFinished, StepFinished
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


def test_neither_torch_nor_tensorflow_is_loaded() -> None:
    program = (
        "import sys, molt_plugin_tracking.tensorboard; "
        "print([name for name in ('torch', 'tensorflow') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
