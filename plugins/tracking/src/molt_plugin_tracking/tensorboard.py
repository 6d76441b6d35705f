"""Hook `tensorboard`: every metric becomes a scalar, with the optimizer step as its axis.

In go events of the run, out comes an event file in `<run folder>/tensorboard`. Values that are
not finite are written as they are; TensorBoard marks them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from molt_core.api.events import EvalFinished, RunFinished, StepFinished
from molt_core.api.hookspecs import hookimpl
from molt_plugin_tracking.spec import TensorBoardOptions

FLUSH_S = 10
"""Seconds until a scalar is on disk at the latest."""


class TensorBoard:
    def __init__(self, options: TensorBoardOptions, run_folder: Path) -> None:
        self._every = options.every
        self._writer = EventFileWriter(str(run_folder / "tensorboard"), flush_secs=FLUSH_S)

    @hookimpl
    def molt_step_finished(self, event: StepFinished) -> None:
        if event.step % self._every == 0:
            self._write(event.step, event.metrics)

    @hookimpl
    def molt_eval_finished(self, event: EvalFinished) -> None:
        self._write(event.step, event.metrics)

    @hookimpl
    def molt_run_finished(self, event: RunFinished) -> None:
        self._writer.close()

    def _write(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=values)))
