"""Hook `tensorboard`: every metric becomes a scalar, with the optimizer step as its axis.

In go events of the run, out comes an event file in `<run folder>/tensorboard`, one for each process
that worked on the run. Each begins with a mark from which step on it replaces the earlier ones, so
that after a kill TensorBoard shows each step once. Values that are not finite are written as they
are; TensorBoard marks them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from molt_core.api.events import EvalFinished, RunFinished, RunStarted, StepFinished
from molt_core.api.hookspecs import hookimpl
from molt_plugin_tracking.spec import TensorBoardOptions


class TensorBoard:
    def __init__(self, options: TensorBoardOptions, run_folder: Path) -> None:
        self._every = options.every
        self._folder = run_folder / "tensorboard"
        self._writer = EventFileWriter(str(self._folder))
        self._resumed_step = 0

    @hookimpl
    def molt_run_started(self, event: RunStarted) -> None:
        self._resumed_step = event.step
        first = event.step + 1 if event.step else 0  # 0: an evaluation comes before the first step
        # the reader takes what an earlier file holds of this step and later ones out
        self._add(Event(step=first, session_log=SessionLog(status=SessionLog.START)))

    @hookimpl
    def molt_step_finished(self, event: StepFinished) -> None:
        if event.step % self._every == 0:
            self._write(event.step, event.metrics)

    @hookimpl
    def molt_eval_finished(self, event: EvalFinished) -> None:
        # one beside training may have ended after the checkpoint was made; it is then made again
        if event.step == 0 or event.step != self._resumed_step or not self._has(event.step, event.metrics):
            self._write(event.step, event.metrics)

    @hookimpl
    def molt_run_finished(self, event: RunFinished) -> None:
        self._writer.close()

    def _has(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether the reader finds one of these metrics for this step."""
        found = False
        for path in sorted(self._folder.iterdir()):
            for event in LegacyEventFileLoader(str(path)).Load():
                if event.session_log.status == SessionLog.START and event.step <= step:
                    found = False
                elif event.step == step:
                    found |= any(value.tag in metrics for value in event.summary.value)
        return found

    def _write(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(Event(step=step, summary=Summary(value=values)))

    def _add(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.add_event(event)
        # steps take seconds: each is on disk before a checkpoint says that it is done
        self._writer.flush()
