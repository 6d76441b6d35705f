"""One evaluation from a checked plan: every task k times, by engines and workers alone. There is no trainer.

Each episode is written as it ends, so that a run which is stopped leaves what it has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import attrs

from molt_core.api.events import EvalFinished
from molt_core.api.findings import Finding, error
from molt_core.config.parse import Configuration
from molt_core.data.tasks import Task
from molt_core.errors import ConfigError, ObjectLost, RunError, first_cause
from molt_core.experience import RolloutSummary
from molt_core.launch import wire
from molt_core.launch.opening import Opened, open_run
from molt_core.launch.sampling import RemoteSampler
from molt_core.launch.starting import running
from molt_core.loop.evaluate import eval_tasks, evaluate
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.stop import StopSignal
from molt_core.plan.plan import Plan
from molt_core.report.evaluation import episode, evaluation_lines
from molt_core.report.json_lines import JsonLines
from molt_core.report.metrics import eval_metrics
from molt_core.report.metrics_file import MetricsFile
from molt_core.report.step_line import counted, duration

MOST_TASKS = 1_000_000
"""More than any data set here; an environment that makes as many makes them without end."""


class EpisodeSampler:
    """A sampler that writes down each rollout with its texts, and lets go of its tokens."""

    def __init__(self, sampler: RemoteSampler, opened: Opened, num_episodes: int) -> None:
        self._sampler = sampler
        self._console = opened.console
        self._lines = JsonLines(opened.folder.episodes)
        self._num_episodes = num_episodes
        self._num_done = 0

    async def sample(self, request: RolloutRequest) -> RolloutSummary:
        while True:
            summary = await self._sampler.sample(request)
            try:
                texts = {} if summary.payload is None else await self._sampler.texts(summary.payload)
                break
            except ObjectLost:
                # its worker died in between; the episode is not counted yet
                continue
        number = int(request.rollout_id.removeprefix(f"{request.group_id}-"))
        self._lines.write(episode(request.task.task_id, request.task.row, number, summary, texts))
        self._num_done += 1
        self._console.progress(f"{self._num_done}/{self._num_episodes} episodes")
        return attrs.evolve(summary, payload=None)

    def close(self) -> None:
        self._lines.close()


def evaluate_model(configuration: Configuration, plan: Plan, findings: Sequence[Finding]) -> int:
    """Evaluate, write and show.

    Raises:
        ConfigError, PreflightError, Interrupted: as `molt_core.cli.eval` says.
        RunError: an engine or worker is gone, or not one episode could be graded.
    """
    tasks = _tasks(plan)
    # from here on a number, by which the engines know how many requests to expect
    plan = attrs.evolve(plan, run={**plan.run, "eval_prompts": len(tasks)})
    opened = open_run(configuration, plan, findings, "eval")
    console, options = opened.console, configuration.run
    started = time.monotonic()
    try:
        summaries = asyncio.run(_sample(plan, opened, tasks))
    finally:
        console.close()
    name = wire.eval_name(plan)
    metrics = eval_metrics(summaries, name=name)
    lines = MetricsFile(opened.folder.metrics)
    lines.on_event(EvalFinished(step=0, version=0, metrics=metrics, summaries=summaries))
    lines.close()
    console.note(
        f"{opened.model.folder} on {options.data or name}: {counted(len(tasks), 'prompt')} x "
        f"{counted(options.eval_samples, 'reply', 'replies')} "
        f"at temperature {options.eval_temperature:g}, in {duration(time.monotonic() - started)}"
    )
    short = {key.removeprefix(f"eval/{name}/"): value for key, value in metrics.items()}
    for line in evaluation_lines(summaries, short, console.width):
        console.note(line)
    console.note(f"episodes: {opened.folder.episodes}")
    if all(summary.reward is None for summary in summaries):
        raise RunError("not one episode could be graded; the reasons are above", reason="nothing_graded")
    return 0


def _tasks(plan: Plan) -> tuple[Task, ...]:
    """Every task once, or as many as were asked for."""
    options = plan.run_options()
    tasks = eval_tasks(wire.task_source(plan, options.data, "eval"), options.eval_prompts or MOST_TASKS)
    if len(tasks) == MOST_TASKS:
        message = f"the environment makes {MOST_TASKS} tasks and more, so all of them can't be evaluated"
        raise ConfigError([error("M314", message, fix="--eval-prompts 100")])
    if not tasks:
        raise ConfigError([error("M314", "there is no task to evaluate")])
    return tasks


async def _sample(plan: Plan, opened: Opened, tasks: Sequence[Task]) -> tuple[RolloutSummary, ...]:
    options = plan.run_options()
    stop = StopSignal()
    async with running(plan, opened.model, stop, opened.console.on_event) as (_, actors):
        remote = RemoteSampler(actors.workers, actors.engines)
        sampler = EpisodeSampler(remote, opened, len(tasks) * options.eval_samples)
        try:
            return await stop.unless_stopped(
                evaluate(tasks, sampler=sampler, run=options, max_tokens=options.max_tokens, label="eval")
            )
        except BaseExceptionGroup as errors:
            raise first_cause(errors) from None
        finally:
            sampler.close()
