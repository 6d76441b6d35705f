"""The main job, `examples/quickstart.toml`, for seeds 0, 1 and 2: does it learn, how fast, with what overhead.

    .venv/bin/python bench/bench_main_job.py [--seeds 0 1 2]

The loop's own cost is step time less generating, training and weight update, which take turns
here (strictly on-policy). Memory is the sum of the proportional set sizes of the whole process
tree, so that shared pages count once. They are sampled every three seconds, because reading them
stops the process that is read; the peak is reported.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from molt_core.report.json_lines import read_json_lines

MOLT = str(Path(sys.executable).parent / "molt")
ROOT = Path(__file__).resolve().parent.parent
GOAL, PATIENCE, LIMIT_S = 0.9, 3, 300.0


class PeakMemory:
    """Bytes of a process tree, watched from a thread."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self.peak = 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(3.0):
            total = 0
            try:
                for process in [self._root, *self._root.children(recursive=True)]:
                    total += self._bytes(process)
            except psutil.NoSuchProcess:
                continue
            self.peak = max(self.peak, total)

    def _bytes(self, process: psutil.Process) -> int:
        try:
            return int(process.memory_full_info().pss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return 0

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self.peak


def measure(seed: int, folder: Path) -> dict[str, float]:
    name = f"seed-{seed}"
    command = [MOLT, "run", "examples/quickstart.toml", "--seed", str(seed), "--output-dir", str(folder)]
    began = time.monotonic()
    process = subprocess.Popen([*command, "--run-name", name], cwd=ROOT, stdout=subprocess.DEVNULL)
    memory = PeakMemory(process.pid)
    code = process.wait()
    peak = memory.stop()
    if code != 0:
        raise SystemExit(f"seed {seed}: molt run ended with {code}")
    records = read_json_lines(folder / name / "metrics.jsonl")
    steps = [record for record in records if "reward/mean" in record]
    rewards = [step["reward/mean"] for step in steps]
    overhead = [
        step["time/step_s"] - step["time/generate_s"] - step["time/train_s"] - step["time/sync_s"]
        for step in steps
    ]
    return {
        "start": statistics.mean(rewards[:3]),
        "end": min(rewards[-PATIENCE:]),
        "training_s": sum(step["time/step_s"] for step in steps),
        "total_s": time.monotonic() - began,
        "step_s": statistics.median(step["time/step_s"] for step in steps),
        "sync_s": statistics.median(step["time/sync_s"] for step in steps),
        "overhead": sum(overhead) / sum(step["time/step_s"] for step in steps),
        "peak_gb": peak / 1e9,
        "num_steps": len(steps),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    bounds = {
        "start": ("reward, first 3 steps", lambda v: v < 0.3, "< 0.3"),
        "end": ("least reward of last 3 steps", lambda v: v >= GOAL, f">= {GOAL}"),
        "training_s": ("seconds of training", lambda v: v <= LIMIT_S, f"<= {LIMIT_S:.0f}"),
        "step_s": ("median step, s", lambda v: v <= 6.5, "<= 6.5"),
        "sync_s": ("median weight update, s", lambda v: v <= 1.0, "<= 1.0"),
        "overhead": ("loop's own share of a step", lambda v: v <= 0.05, "<= 0.05"),
        "peak_gb": ("peak memory of all processes, GB", lambda v: v <= 10, "<= 10"),
        "num_steps": ("steps", lambda v: True, ""),
        "total_s": ("seconds from start to end", lambda v: True, ""),
    }
    with tempfile.TemporaryDirectory() as folder:
        results = [measure(seed, Path(folder)) for seed in seeds]
    print(f"{'':<34}" + "".join(f"{f'seed {seed}':>10}" for seed in seeds) + "   bound")
    kept = True
    for key, (label, holds, bound) in bounds.items():
        values = [result[key] for result in results]
        ok = all(holds(value) for value in values)
        kept &= ok
        cells = "".join(f"{value:>10.3f}" for value in values)
        print(f"{label:<34}{cells}   {bound:<8} {'' if not bound else 'ok' if ok else 'MISSED'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
