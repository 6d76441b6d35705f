"""Each estimator learns: a task, a rise that must be reached, and three seeds.

The task is that of examples/tiny.toml: a model of 0.15M random weights answers sums, and is paid for the share of
digits in its reply. Runs are those of `molt run`, with the transformers engine, in this process. Bounds:

    reward      mean of the last 5 steps minus mean of the first 3, of estimators that see the reward
    critic      gae: the value loss of the last 5 steps is below that of steps 2 to 6 (the first values are 0)
    teacher     on_policy_distill: the KL to the teacher of the last 5 steps against the first 3. The teacher is the
                last checkpoint of the grpo run with the same seed

    .venv/bin/python bench/bench_learning.py              all estimators, seeds 0, 1, 2
    .venv/bin/python bench/bench_learning.py gae 1        one of them, one seed
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

from attrs import frozen

from molt_core.cli.main import main as molt
from molt_core.report.json_lines import read_json_lines

ROOT: Final = Path(__file__).resolve().parent.parent
SEEDS: Final = (0, 1, 2)
LEAST_RISE: Final = 0.7
"""Of the reward, which goes from 0 to 1."""
MOST_VALUE_LOSS: Final = 0.5
MOST_KL: Final = 0.2
"""Shares of what they were at the start."""
FLAGS: Final[dict[str, tuple[str, ...]]] = {
    "reinforce++": (),
    "reinforce++-baseline": (),
    "grpo": (),
    "dr_grpo": (),
    "rloo": (),
    "flash_reinforce": ("--group-size", "1", "--prompts-per-step", "32"),
    "gae": ("--trainer.critic-lr", "1e-2", "--trainer.critic-warmup-steps", "3"),
    "on_policy_distill": (),
}


@frozen
class Learned:
    estimator: str
    seed: int
    what: str
    first: float
    last: float
    bound: str
    kept: bool

    def __str__(self) -> str:
        cells = f"{self.first:>9.3f} -> {self.last:<9.3f}{self.bound:<14}{'ok' if self.kept else 'MISSED'}"
        return f"{self.estimator:<22}{self.seed:>4}  {self.what:<16}{cells}"


def run(folder: Path, name: str, *flags: str) -> list[dict[str, Any]]:
    """Metrics of each step of a run in `folder`."""
    argv = ["run", str(ROOT / "examples/tiny.toml"), "--engine", "transformers", "--executor", "local"]
    argv += [
        "--data",
        str(ROOT / "examples/tiny.jsonl"),
        "--env.reward",
        f"{ROOT}/examples/tiny_reward.py:reward_digits",
    ]
    argv += ["--output-dir", str(folder), "--run-name", name, *flags]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = molt(argv)
    if code:
        raise SystemExit(f"{' '.join(argv)} ended with {code}:\n{said.getvalue()}")
    return [record for record in read_json_lines(folder / name / "metrics.jsonl") if "time/step_s" in record]


def learned(estimator: str, seed: int, folder: Path, steps: int = 40) -> list[Learned]:
    """Train, and compare the end with the beginning. A teacher is trained first where one is needed."""
    common = ("--seed", str(seed), "--steps", str(steps))
    flags = ("--estimator", estimator, *FLAGS[estimator])
    if estimator == "on_policy_distill":
        teacher = f"teacher-{seed}"
        run(folder, teacher, "--estimator", "grpo", *common)
        flags = (*flags, "--reference", str(folder / teacher / "latest"))
    steps_of_run = run(folder, f"{estimator}-{seed}", *flags, *common)

    def part(name: str, which: slice) -> float:
        return mean([step[name] for step in steps_of_run if name in step][which])

    if estimator == "on_policy_distill":
        first, last = part("estimator/kl", slice(3)), part("estimator/kl", slice(-5, None))
        kept = last <= MOST_KL * first
        return [Learned(estimator, seed, "KL to teacher", first, last, f"<= x {MOST_KL:g}", kept)]
    first, last = part("reward/mean", slice(3)), part("reward/mean", slice(-5, None))
    rows = [
        Learned(estimator, seed, "reward", first, last, f">= + {LEAST_RISE:g}", last - first >= LEAST_RISE)
    ]
    if estimator == "gae":
        first, last = part("critic/loss", slice(1, 6)), part("critic/loss", slice(-5, None))
        kept = last <= MOST_VALUE_LOSS * first
        rows.append(Learned(estimator, seed, "value loss", first, last, f"<= x {MOST_VALUE_LOSS:g}", kept))
    return rows


def main(argv: Sequence[str]) -> int:
    estimators = [argv[0]] if argv else list(FLAGS)
    seeds = [int(argv[1])] if len(argv) > 1 else SEEDS
    kept = True
    print(f"{'estimator':<22}{'seed':>4}  {'what':<16}{'start':>9} -> {'end':<9}{'bound':<14}")
    with tempfile.TemporaryDirectory() as folder:
        for estimator in estimators:
            for seed in seeds:
                for row in learned(estimator, seed, Path(folder)):
                    print(row, flush=True)
                    kept &= row.kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
