"""What a person sees while a run goes on: a banner, one line per step, evaluations, and an end report.

In go the run's events; out come lines on a stream. On a terminal the last line is alive and
shows the rollouts of the step that is coming. Formatting is in `step_line` and `closing`;
here are the stream, its width and its colours.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from molt_core.api.events import (
    ActorDied,
    ActorJoined,
    CheckpointSaved,
    EvalFinished,
    Event,
    RolloutFinished,
    RunFinished,
    RunStarted,
    StepFinished,
)
from molt_core.report.cells import cut
from molt_core.report.closing import closing_lines
from molt_core.report.step_line import duration, number, step_line

UNKNOWN_COLUMNS: Final = 100
"""Width of what is no terminal, unless COLUMNS is set."""
RECENT_STEPS: Final = 10
"""Steps whose mean duration predicts the rest."""
BANNER_SLOTS: Final = {
    "envs": "environment", "agents": "agent", "estimators": "estimator", "losses": "loss", "corrections": "correction",
    "filters": "filter", "shapers": "shaper", "engines": "engine", "trainers": "trainer", "executors": "executor",
    "hooks": "hook",
}  # fmt: skip
NEARLY_ALL: Final = 0.9
"""Share of tokens that a correction may leave out before it is said aloud."""
CLEAR_LINE: Final = "\r\x1b[K"
DIM, BOLD, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


class Console:
    """
    Args:
        plan: as in plan.json.
        columns: None means: as wide as the terminal is at each line, 100 where there is none.
        live: None means: if the stream is a terminal. Colours need that too, and no NO_COLOR.
    """

    def __init__(
        self, plan: Mapping[str, Any], run_folder: Path, stream: TextIO | None = None, *,
        columns: int | None = None, live: bool | None = None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._run_folder = _short(run_folder)
        self._stream = stream or sys.stdout
        self._columns = columns
        self._live = self._stream.isatty() if live is None else live
        self._colours = self._live and not os.environ.get("NO_COLOR")
        self._ascii = not (getattr(self._stream, "encoding", None) or "").lower().startswith("utf")
        self._rewards: list[float] = []
        self._step_seconds: list[float] = []
        self._evals: list[EvalFinished] = []
        self._num_rollouts = 0
        self._first_step = 0

    def on_event(self, event: Event) -> None:
        """Show an event."""
        match event:
            case RunStarted():
                self._first_step = event.step
                for label, value in self._banner():
                    self._print(f"{label:<11}  {value}", DIM)
            case RolloutFinished():
                self._show_coming()
            case StepFinished():
                self._show_step(event)
            case EvalFinished():
                # those between the first and the last are not compared, and would pile up
                self._evals = [*self._evals[:1], event]
                self._print(eval_line(event), DIM)
            case ActorDied():
                again = (
                    "not started again"
                    if event.restart_in_s is None
                    else (f"started again in {duration(event.restart_in_s)}")
                )
                cause = event.cause.partition("\n")[0]
                self.note(f"{event.name} is lost, {again}: {cause}")
            case ActorJoined():
                self.note(f"{event.name} is there, after {duration(event.seconds)}")
            case CheckpointSaved():
                self.note(f"step {event.step}: saved {_short(event.path)} in {event.seconds:.1f}s")
            case RunFinished():
                self._close(event)
            case _:
                pass

    def note(self, text: str) -> None:
        """One line beside the steps; never cut, since it may hold a path or an error."""
        self._write(f"{text}\n")

    def progress(self, text: str) -> None:
        """The last line, where that is alive."""
        if self._live:
            self._write(cut(text, self.width))

    def close(self) -> None:
        """Leave the terminal on a fresh line. May be called twice."""
        self._write("")

    def _banner(self) -> Iterator[tuple[str, str]]:
        run, parts = self._plan["run"], self._plan["parts"]
        yield "model", f"{run['model']} ({run['dtype']})"
        for slot, label in BANNER_SLOTS.items():
            if parts.get(slot):
                yield (
                    label,
                    ", ".join(f"{part['name']} ({part['dist']} {part['version']})" for part in parts[slot]),
                )
        yield (
            "step",
            (
                f"{run['prompts_per_step']} prompts x {run['group_size']} rollouts of at most {run['max_tokens']} "
                f"tokens, staleness at most {run['max_staleness']}"
            ),
        )
        yield "run folder", str(self._run_folder)

    def _show_step(self, event: StepFinished) -> None:
        self._num_rollouts = 0
        self._rewards.append(event.metrics.get("reward/mean", float("nan")))
        self._step_seconds.append(event.metrics.get("time/step_s", 0.0))
        recent = self._step_seconds[-RECENT_STEPS:]
        num_steps = self._plan["run"]["steps"]
        line = step_line(
            event.step, event.metrics, num_steps=num_steps, rewards=self._rewards,
            left_s=sum(recent) / len(recent) * (num_steps - event.step),
            columns=self.width, plain=self._ascii,
        )  # fmt: skip
        self._print(line)
        left_out = event.metrics.get("correction/left_out_rate", 0.0)
        if left_out >= NEARLY_ALL:
            apart = number(event.metrics.get("mismatch/abs_diff"), 3)
            self.note(
                f"step {event.step}: the correction left out {left_out:.0%} of the tokens, so nearly nothing was "
                f"learned. Trainer and sampler are {apart} nats apart at a token: a lower --max-staleness or --lr, "
                "--dtype float32, or a wider --correction.threshold"
            )

    def _show_coming(self) -> None:
        self._num_rollouts += 1
        run = self._plan["run"]
        total = run["prompts_per_step"] * run["group_size"]
        self.progress(
            f"step {self._first_step + len(self._rewards) + 1}: {min(self._num_rollouts, total)}/{total} rollouts"
        )

    def _close(self, event: RunFinished) -> None:
        lines = closing_lines(
            event, self._evals, self._rewards, seconds=sum(self._step_seconds), num_steps=event.step - self._first_step,
            checkpoint=str(_short(event.checkpoint)) if event.checkpoint else "",
            next_steps=tuple(self._next_steps(event)), columns=self.width,
        )  # fmt: skip
        for number_of_line, line in enumerate(lines):
            self._write(f"{BOLD}{line}{PLAIN}\n" if self._colours and number_of_line == 1 else f"{line}\n")

    def _next_steps(self, event: RunFinished) -> Iterator[tuple[str, str]]:
        folder = self._run_folder
        if event.outcome in ("interrupted", "failed"):
            yield "go on", f"molt resume {folder}"
        if event.checkpoint:
            if event.outcome in ("done", "stopped_early"):
                yield "train it further", f"molt resume {folder} --steps {2 * self._plan['run']['steps']}"
            yield "evaluate it", f"molt eval {folder / 'config.toml'} --model {folder / 'latest'}"
            yield "load it", f"AutoModelForCausalLM.from_pretrained({str(folder / 'latest')!r})"
        seed, name = self._plan["run"]["seed"] + 1, self._plan["run"].get("run_name")
        # a name of one's own is in the file, and a run is never overwritten
        other_name = f" --run-name {re.sub(r'-seed-[0-9]+$', '', name)}-seed-{seed}" if name else ""
        yield "again, other seed", f"molt run {folder / 'config.toml'} --seed {seed}{other_name}"
        if any(part["name"] == "tensorboard" for part in self._plan["parts"].get("hooks", ())):
            yield "see the curves", f"tensorboard --logdir {folder}"
        else:
            yield "read the numbers", str(folder / "metrics.jsonl")

    @property
    def width(self) -> int:
        """Cells of a line."""
        return self._columns or shutil.get_terminal_size((UNKNOWN_COLUMNS, 24)).columns

    def _print(self, line: str, colour: str = "") -> None:
        line = cut(line, self.width)
        self._write(f"{colour}{line}{PLAIN}\n" if colour and self._colours else f"{line}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(f"{CLEAR_LINE}{text}" if self._live else text)
            self._stream.flush()
        except (OSError, ValueError):
            # whoever read this has gone (`| head`, a closed terminal); a run does not end for that
            self._stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process


def _short(path: Path) -> Path:
    """Relative to the working directory where the path lies in it, as a person would type it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def eval_line(event: EvalFinished) -> str:
    """One evaluation, by the metrics that people ask for first."""
    shown = [
        f"{name.removeprefix('eval/')} {number(value, 3)}"
        for name, value in event.metrics.items()
        if "/pass@" in name or name.endswith("/reward_mean")
    ]
    return f"evaluation after step {event.step}: {'  '.join(shown)}"
