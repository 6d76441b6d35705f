"""The loop without a model: rollouts per second, memory, bytes through the controller, overlap, long tails.

    .venv/bin/python bench/bench_loop.py [--quick]

Throughput and memory are measured in real time, with workers that answer after a random while by a pickled summary,
as over Ray; what Ray itself costs is not in them. Overlap is measured in real time too, with stages that sleep. Long
tails are simulated on virtual time, because an engine with places and lognormal lengths is a model in either case.
`--quick` makes a tenth of the rollouts.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripted_loop import ObjectReference, PlacesEngine, TimedPolicy, controller, fleet, summary_of

from molt_core.api.events import Event, RolloutFinished, StepFinished
from molt_core.api.run_options import RunOptions
from molt_core.data.tasks import Task
from molt_core.experience import Outcome, Rollout, Segment, Window
from molt_core.experience.codec import encode
from molt_core.experience.rollout import summarize
from molt_core.launch.sampling import RemoteSampler
from molt_core.loop.ports import ItemReference, RankShare, RolloutRequest
from molt_core.testing import run_virtual

GROUP, PROMPTS, STALENESS = 8, 125, 17
"""18,000 rollouts are unconsumed; those that wait for the last of their group are not in flight any more."""
PER_STEP = GROUP * PROMPTS
MIN_IN_FLIGHT, MIN_PER_S, MAX_GROWTH, MAX_BYTES, MIN_OVERLAP = 10_000, 2_000, 1.05, 2_048, 0.95
STAGE_S = 0.5


def verdict(kept: bool) -> str:
    return "ok" if kept else "MISSED"


def memory_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


class Engine:
    """Known to the worker, which answers for it."""

    def __init__(self, name: str) -> None:
        self.name = name


class ScriptedWorker:
    """A worker that answers each rollout after three to five seconds; request and answer are pickled on their way."""

    name = "worker"

    def __init__(self) -> None:
        self.num_in_flight = 0
        self._random = random.Random(0)

    async def call(self, method: str, *args: Any) -> Any:
        if method == "connect":
            return None
        asked = pickle.dumps(args)
        self.num_in_flight += 1
        await asyncio.sleep(3 + 2 * self._random.random())
        self.num_in_flight -= 1
        return pickle.loads(pickle.dumps(summary_of(pickle.loads(asked)[0], 0, 0)))


def throughput(num_rollouts: int, folder: Path) -> bool:
    worker = ScriptedWorker()
    started, started_cpu = time.perf_counter(), time.process_time()
    clock = {"first": 0.0}
    in_flight = [0, 0]
    """Count and sum, while new rollouts start."""
    memory: list[float] = []

    def watch(event: Event) -> None:
        if isinstance(event, RolloutFinished):
            clock["first"] = clock["first"] or time.perf_counter()
            if in_flight[0] < num_rollouts - PER_STEP * (STALENESS + 1):
                in_flight[0] += 1
                in_flight[1] += worker.num_in_flight
        elif isinstance(event, StepFinished) and event.step % (run.steps // 10) == 0:
            memory.append(memory_mb())
            seconds = time.perf_counter() - started
            done = event.step * PER_STEP
            print(f"  {done:>9,} rollouts after {seconds:5.0f} s: {memory[-1]:.0f} MB", flush=True)

    run = RunOptions(
        model="-", steps=num_rollouts // PER_STEP, group_size=GROUP, prompts_per_step=PROMPTS,
        max_staleness=STALENESS, eval_prompts=0,
    )  # fmt: skip

    async def loop() -> None:
        workers, engines = (
            await fleet([worker]),
            await fleet([Engine(f"engine-{index}") for index in range(4)]),
        )
        await controller(run, RemoteSampler(workers, engines), TimedPolicy(0.0), folder, watch).run()

    asyncio.run(loop())
    rate = num_rollouts / (time.perf_counter() - clock["first"])
    growth = memory[-1] / memory[1]
    held = in_flight[1] / in_flight[0]
    cpu_us = 1e6 * (time.process_time() - started_cpu) / num_rollouts
    print(f"  {cpu_us:.0f} us of CPU for each rollout, pickling included")
    fast = rate >= MIN_PER_S and held >= MIN_IN_FLIGHT
    print(f"  {rate:,.0f} finished rollouts/s with {held:,.0f} in flight, bounds {MIN_PER_S:,}/s and "
          f"{MIN_IN_FLIGHT:,}  {verdict(fast)}")  # fmt: skip
    print(
        f"  memory at the end / after a fifth: {growth:.3f}, bound {MAX_GROWTH}  {verdict(growth <= MAX_GROWTH)}"
    )
    return fast and growth <= MAX_GROWTH


def num_bytes(num_tokens: int) -> tuple[int, dict[str, float]]:
    """Bytes in the store, and those through the controller by message, of one rollout of so many tokens."""
    sampled = num_tokens - 512
    rollout = Rollout(
        rollout_id="123456-7", group_id="123456", outcome=Outcome.FINISHED, reward=1.0, seconds=12.5,
        segments=(Segment.from_turn([7] * 512, [7] * sampled, [-1.0] * sampled, [3] * sampled),),
        info={"format": 1.0, "num_tools": 3.0}, prompt_text="問" * num_tokens, reply_text="答" * num_tokens,
    )  # fmt: skip
    row = {"prompt": "What is 12 + 30? Think step by step, and end with the number alone.", "answer": "42"}
    request = RolloutRequest(
        rollout_id="123456-7", group_id="123456", task=Task(task_id="train/123456", row=row), temperature=1.0,
        max_tokens=num_tokens, seed=1_234_567_890, timeout_s=600.0,
    )  # fmt: skip
    items = tuple(
        ItemReference(
            payload=ObjectReference(), rollout_id=f"123456-{index}", segment=0, num_tokens=num_tokens,
            advantage=1.0 / (1 + index), rollout_index=index, group_index=index // 8,
            rollout_tokens=sampled, group_tokens=8 * sampled,
        )
        for index in range(64)
    )  # fmt: skip
    share = RankShare(items=items, window=Window(num_tokens=64 * sampled, num_rollouts=64, num_groups=8))
    return len(encode(rollout)), {
        "request": len(pickle.dumps(request)),
        "summary": len(pickle.dumps(summarize(rollout, ObjectReference()))),
        "item": len(pickle.dumps(share)) / len(items),
    }


def traffic() -> bool:
    totals = []
    for num_tokens in (8_192, 65_536):
        stored, parts = num_bytes(num_tokens)
        totals.append(sum(parts.values()))
        told = " + ".join(f"{size:.0f} {name}" for name, size in parts.items())
        print(f"  {num_tokens:>6,} tokens: {told} = {totals[-1]:,.0f} bytes (in the store: {stored:,}), "
              f"bound {MAX_BYTES:,}  {verdict(totals[-1] < MAX_BYTES)}")  # fmt: skip
    return max(totals) < MAX_BYTES


async def staged(
    folder: Path,
    *,
    seconds: Any,
    train_s: float,
    staleness: int,
    partial: bool = True,
    steps: int,
    warm_up: int = 2,
) -> tuple[float, float]:
    """Seconds of a step, and those that its rollouts keep the engine's places; without the first and the last."""
    run = RunOptions(
        model="-", steps=steps, group_size=8, prompts_per_step=8, max_staleness=staleness, eval_prompts=0,
    )  # fmt: skip
    num_places = run.group_size * run.prompts_per_step
    engine = PlacesEngine(seconds, num_places)
    ends: list[tuple[float, float]] = []

    def watch(event: Event) -> None:
        if isinstance(event, StepFinished):
            ends.append((asyncio.get_running_loop().time(), engine.busy_s))

    folder.mkdir(exist_ok=True)
    await controller(run, engine, TimedPolicy(train_s, engine, drain=not partial), folder, watch).run()
    (first_s, first_busy), (last_s, last_busy) = ends[warm_up], ends[-2 - staleness]
    count = len(ends) - 2 - staleness - warm_up
    return (last_s - first_s) / count, (last_busy - first_busy) / count / num_places


def overlap(folder: Path, steps: int) -> bool:
    """Stages that sleep equally long; the engine has places for the rollouts of one step."""
    step_s, _ = asyncio.run(
        staged(folder, seconds=lambda seed: STAGE_S, train_s=STAGE_S, staleness=1, steps=steps)
    )
    efficiency = STAGE_S / step_s
    print(f"  step {step_s:.3f} s where generation and training take {STAGE_S} s each: {efficiency:.3f}, "
          f"bound {MIN_OVERLAP}  {verdict(efficiency >= MIN_OVERLAP)}")  # fmt: skip
    return efficiency >= MIN_OVERLAP


def long_tails(folder: Path, steps: int) -> None:
    """Seconds of a rollout lognormal with median 1 and sigma 1, training as long as generation at full places."""
    mean_s = 1.6487  # exp(sigma ** 2 / 2)
    print(f"  {'':<26}step s   lost s   lost")
    for staleness in (0, 1, 2, 4):
        for partial in (True, False) if staleness else (True,):
            step_s, _ = run_virtual(
                staged(
                    folder, seconds=lambda seed: random.Random(seed).lognormvariate(0, 1), train_s=mean_s,
                    staleness=staleness, partial=partial, steps=steps,
                )
            )  # fmt: skip
            name = f"--max-staleness {staleness} {'' if not staleness else '--partial' if partial else '--no-partial'}"
            ideal = mean_s if staleness else 2 * mean_s
            print(f"  {name:<34}{step_s:6.2f}   {step_s - ideal:6.2f}   {1 - ideal / step_s:4.0%}")


def main(quick: bool) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("bytes through the controller for one rollout")
        kept = [traffic()]
        print("overlap, --max-staleness 1")
        kept.append(overlap(folder, 20 if quick else 60))
        print("long tails")
        long_tails(folder, 100 if quick else 1000)
        print("throughput")
        kept.append(throughput(100_000 if quick else 1_000_000, folder))
    print("all within bounds" if all(kept) else "MISSED")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv))
