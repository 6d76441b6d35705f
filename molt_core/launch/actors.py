"""Which actors a plan needs, and how many threads each gets. Pure: from plan to requests."""

from __future__ import annotations

import os

from molt_core.api.executor import ActorRequest
from molt_core.api.run_options import RunOptions
from molt_core.launch.engine_host import engine_name
from molt_core.launch.prepared_model import PreparedModel
from molt_core.plan.plan import Plan

QUIET = {"TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def threads_per_actor(run: RunOptions, num_cores: int) -> int:
    """CPU threads of one engine or rank.

    Strictly on-policy, generation and training take turns, so each gets all cores; otherwise
    they overlap and share them.
    """
    if run.threads is not None:
        return run.threads
    replicas = (
        max(run.engines, run.trainer_ranks) if run.max_staleness == 0 else run.engines + run.trainer_ranks
    )
    return max(1, num_cores // replicas)


def thread_environment(run: RunOptions, threads: int) -> dict[str, str]:
    """Environment variables of an engine or a rank."""
    environment = {**QUIET, "OMP_NUM_THREADS": str(threads)}
    if run.max_staleness > 0 or run.engines > 1 or run.trainer_ranks > 1:
        # threads of OpenMP that spin while they wait take the core from whoever works
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    return environment


def engine_requests(plan: Plan, model: PreparedModel) -> list[ActorRequest]:
    run = plan.run_options()
    threads = threads_per_actor(run, os.cpu_count() or 1)
    in_flight = run.group_size * run.prompts_per_step * (run.max_staleness + 1)
    evaluated = min(run.eval_prompts * run.eval_samples, run.eval_concurrency)
    concurrency = max(in_flight, evaluated) if run.max_staleness == 0 else in_flight + evaluated
    return [
        ActorRequest(
            name=engine_name(index),
            role="engines",
            factory="molt_core.launch.engine_host:EngineHost",
            args=(
                plan.to_json(),
                {
                    "model_folder": str(model.folder),
                    "dtype": run.dtype,
                    "max_length": model.max_length,
                    # alone in its batch, a reply does not depend on who came when
                    "max_concurrency": 1 if run.deterministic else -(-concurrency // run.engines),
                    "seed": run.seed + index,
                    "index": index,
                    "num_threads": threads,
                    "end_token_ids": model.end_token_ids,
                    "top_logprobs": plan.top_logprobs,
                },
            ),
            env=thread_environment(run, threads),
            wants_gpu=True,
        )
        for index in range(run.engines)
    ]


def trainer_requests(plan: Plan, model: PreparedModel) -> list[ActorRequest]:
    run = plan.run_options()
    threads = threads_per_actor(run, os.cpu_count() or 1)
    return [
        ActorRequest(
            name=f"trainer-{rank}",
            role="ranks",
            factory="molt_core.launch.trainer_host:TrainerHost",
            args=(
                plan.to_json(),
                {
                    "model_folder": str(model.folder),
                    "dtype": run.dtype,
                    "lr": run.lr,
                    "temperature": run.temperature,
                    "max_length": model.max_length,
                    "deterministic": run.deterministic,
                    "seed": run.seed,
                    "rank": rank,
                    "world_size": run.trainer_ranks,
                    "rendezvous": "",
                    "num_threads": threads,
                    "facts": plan.facts,
                    "top_logprobs": plan.top_logprobs,
                    "reference_folder": model.reference_folder,
                },
            ),
            env=thread_environment(run, threads),
            wants_gpu=True,
            own_process=rank > 0,
        )
        for rank in range(run.trainer_ranks)
    ]


def worker_requests(plan: Plan, model: PreparedModel) -> list[ActorRequest]:
    run = plan.run_options()
    return [
        ActorRequest(
            name=f"worker-{index}",
            role="workers",
            factory="molt_core.launch.worker_host:WorkerHost",
            args=(
                plan.to_json(),
                {
                    "model_folder": str(model.folder),
                    "max_length": model.max_length,
                    "end_token_ids": model.end_token_ids,
                },
            ),
            env={**QUIET, "OMP_NUM_THREADS": "1"},
        )
        for index in range(run.workers)
    ]
