"""metrics.jsonl: one line per optimizer step, and one per evaluation with the step it was made after."""

from __future__ import annotations

from pathlib import Path

from molt_core.api.events import EvalFinished, Event, StepFinished
from molt_core.report.json_lines import JsonLines


class MetricsFile:
    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    def on_event(self, event: Event) -> None:
        """Write what belongs into the file; other events are ignored."""
        match event:
            case StepFinished(step=step, metrics=metrics):
                self._lines.write({"step": step, **metrics})
            case EvalFinished(step=step, version=version, newest_version=newest, metrics=metrics):
                self._lines.write({"step": step, "version": version, "newest_version": newest, **metrics})
            case _:
                pass

    def close(self) -> None:
        self._lines.close()
