"""Whole runs through the command `molt`, in processes of their own, with nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from molt_core.report.json_lines import read_json_lines
from tests.road.forked import Forked

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 240
MARK = "MOLT_TEST_RUN"
_OUTPUTS = tempfile.TemporaryDirectory(prefix="molt-")
"""Apart from the run folders, which may be full or read-only."""


class Run:
    """One command `molt`: `run`, or `resume` and `replay` of the run in `folder`, or another. Its processes are
    found by an environment variable, wherever they are."""

    def __init__(
        self, folder: Path, *words: str, env: dict[str, str] | None = None, command: str = "run", forked: bool = False
    ) -> None:  # fmt: skip
        """Args: forked: begin with the imports done; for runs of one process."""
        self.folder = folder / "run"
        self._mark = uuid.uuid4().hex
        new = ("--output-dir", str(folder), "--run-name", "run")
        again = command in ("resume", "replay")
        words = (str(self.folder), *words) if again else (*words, *new)
        self._output = Path(_OUTPUTS.name) / f"{self._mark}.txt"
        self._process: subprocess.Popen[bytes] | Forked
        if forked:
            self._process = Forked([command, *words], ROOT, self._output)
            return
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).with_name("molt")), command, *words],
                env={**(env or os.environ), MARK: self._mark}, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def processes(self, name: str = "") -> list[psutil.Process]:
        """Living processes of the run whose command line contains `name`."""
        found = []
        for process in psutil.process_iter():
            try:
                alive = process.status() != psutil.STATUS_ZOMBIE
                ours = (
                    os.getsid(process.pid) == self._process.pid or process.environ().get(MARK) == self._mark
                )
                if alive and ours and name in " ".join(process.cmdline()):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
                continue
        return found

    def wait_for_steps(self, num_steps: int) -> None:
        self.wait_until(lambda: len(self.steps()) >= num_steps, f"step {num_steps}")

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self._process.poll() is None, f"ended too early:\n{self.output}"
            assert time.monotonic() < deadline, f"no {what} in time"
            time.sleep(0.1)

    @property
    def output(self) -> str:
        """What was printed so far."""
        return self._output.read_text() if self._output.exists() else ""

    def interrupt(self) -> None:
        """Ctrl-C in a terminal: SIGINT to the whole foreground group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """SIGTERM to the command alone, as a scheduler sends it."""
        os.kill(self._process.pid, signal.SIGTERM)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL to the whole process group, as when a machine goes down."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> tuple[int, str]:
        """Exit code and everything that was printed."""
        try:
            self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.end()
            raise
        return self._process.returncode, self.output

    def left_behind(self) -> list[str]:
        """Processes that are still there some seconds after the command ended."""
        _, alive = psutil.wait_procs(self.processes(), timeout=10)
        return [" ".join(process.cmdline()) for process in alive]

    def steps(self) -> list[dict[str, float]]:
        path = self.folder / "metrics.jsonl"
        records = read_json_lines(path) if path.exists() else []
        return [record for record in records if "reward/mean" in record]

    def ledger(self) -> dict[str, dict[str, object]]:
        return read_json_lines(self.folder / "ledger.jsonl")[-1]

    def end(self) -> None:
        for process in self.processes():
            process.kill()
        self._process.kill()
        self._process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    """Start a run; it is killed with all its processes when the test ends."""
    started: list[Run] = []

    def begin(*words: str, env: dict[str, str] | None = None, command: str = "run") -> Run:
        one_process = (
            env is None and {"local", "transformers"} <= set(words) and not {"ray", "vllm"} & set(words)
        )
        started.append(Run(tmp_path, *words, env=env, command=command, forked=one_process))
        return started[-1]

    yield begin
    for run in started:
        run.end()


EMBEDDED = (
    "--model", "tiny", "--executor", "local", "--engine", "transformers", "--dtype", "float32", "--max-tokens", "8",
    "--max-length", "128", "--prompts-per-step", "2", "--group-size", "4", "--lr", "1e-2",
)  # fmt: skip
"""A run in one process, without vLLM and Ray: seconds instead of tens of them."""
LONG = ("--steps", "100000", "--stop-at-reward", "none", "--eval-prompts", "0")
SUMS = ("--env", "verify", "--data", "examples/tiny.jsonl")
DIGITS = (*SUMS, "--env.reward", "examples/tiny_reward.py:reward_digits")
