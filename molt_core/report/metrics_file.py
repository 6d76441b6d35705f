"""metrics.jsonl: one line per optimizer step, and one per evaluation and per lost actor with the step before it."""

from __future__ import annotations

from pathlib import Path

from molt_core.api.events import ActorDied, EvalFinished, Event, RunStarted, StepFinished
from molt_core.report.json_lines import JsonLines


class MetricsFile:
    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)
        self._step = 0

    def on_event(self, event: Event) -> None:
        """Write what belongs into the file; other events are ignored."""
        match event:
            case RunStarted(step=step):
                self._step = step
            case StepFinished(step=step, metrics=metrics):
                self._step = step
                self._lines.write({"step": step, **metrics})
            case EvalFinished(step=step, version=version, newest_version=newest, metrics=metrics):
                self._lines.write({"step": step, "version": version, "newest_version": newest, **metrics})
            case ActorDied(name=name, cause=cause):
                self._lines.write({"step": self._step, "actor": name, "lost": cause})
            case _:
                pass

    def close(self) -> None:
        self._lines.close()
