"""Evaluation: k replies to each held-out prompt, by the policy that the engines use meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attrs import evolve

from molt_core.api.run_options import RunOptions
from molt_core.data.tasks import Task, TaskSource
from molt_core.experience import RolloutSummary
from molt_core.loop.ports import RolloutRequest, Sampler


def eval_tasks(source: TaskSource, num_prompts: int) -> tuple[Task, ...]:
    """The first `num_prompts` tasks, so that all evaluations of a run compare the same prompts."""
    tasks: list[Task] = []
    while len(tasks) < num_prompts and (task := source.next()) is not None:
        tasks.append(task)
    return tuple(tasks)


async def evaluate(
    tasks: Sequence[Task], *, sampler: Sampler, run: RunOptions, max_tokens: int, label: str
) -> tuple[RolloutSummary, ...]:
    """All replies, in order of tasks. Failed ones are among them, with their outcome."""
    requests = [
        RolloutRequest(
            rollout_id=f"{label}-{number}-{sample}",
            group_id=f"{label}-{number}",
            task=task,
            temperature=run.eval_temperature,
            max_tokens=max_tokens,
            # the same seeds at each evaluation: what changes between two is the policy
            seed=(run.seed * 999_983 + number * run.eval_samples + sample) % 2**31,
            timeout_s=run.rollout_timeout_s,
        )
        for number, task in enumerate(tasks)
        for sample in range(run.eval_samples)
    ]
    # a rollout's deadline runs from its start, so none may wait for the others behind it
    places = asyncio.Semaphore(run.eval_concurrency)

    async def sample(request: RolloutRequest) -> RolloutSummary:
        async with places:
            summary = await sampler.sample(request)
        # nothing trains on it, so the store may forget its tokens
        return evolve(summary, payload=None)

    async with asyncio.TaskGroup() as replies:
        running = [replies.create_task(sample(request)) for request in requests]
    return tuple(reply.result() for reply in running)
