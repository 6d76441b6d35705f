"""The core's own options: what a run is, whatever plugins it uses."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from molt_core.api.options import option, options


@options
class RunOptions:
    """Flags without a slot, and the top level of a TOML file."""

    model: str = option(help="packaged model by name, local folder, or Hugging Face id")
    reference: str | None = option(
        None, help="frozen model for KL terms, or teacher: folder or Hugging Face id; default: --model"
    )
    data: str | None = option(
        None, help="JSONL, parquet, Hugging Face id, or the name of an environment that makes tasks"
    )
    eval_data: str | None = option(
        None,
        help="as --data, for evaluation; default: the environment's own held-out tasks (molt eval: --data)",
    )
    group_size: int = option(8, help="rollouts sampled for each prompt", ge=1)
    incomplete_groups: Literal["keep", "drop"] = option(
        "keep", help="prompts of which some rollouts failed or abstained: train on the others, or drop all"
    )
    prompts_per_step: int = option(4, help="prompts consumed by one optimizer step", ge=1)
    steps: int = option(100, help="optimizer steps", ge=1)
    max_staleness: int = option(
        0,
        help="most policy versions between sampling a token and training on it; 0 is strictly on-policy",
        ge=0,
    )
    partial: bool = option(
        True, help="requests in flight go on across a weight update; --no-partial drains them first"
    )
    max_tokens: int = option(512, help="most sampled tokens of one reply", ge=1)
    max_length: int | None = option(
        None,
        help="most tokens of prompt and reply together; default: what the model allows, at most 8192",
        ge=2,
    )
    temperature: float = option(1.0, help="sampling temperature; the trainer's log-probs use the same")
    lr: float = option(1e-6, help="learning rate", gt=0)
    seed: int = option(0, help="seed of data order, sampling and initialisation", ge=0)
    dtype: Literal["float32", "bfloat16"] = option(
        "bfloat16", help="compute dtype of engine and trainer; master weights stay float32"
    )
    engines: int = option(1, help="engine replicas", ge=1)
    min_engines: int | None = option(
        None, help="begin when so many engines are there; the others join when the cluster has a place", ge=1
    )
    max_restarts: int = option(
        3, help="times within an hour that an engine or worker that died is started again", ge=0
    )
    trainer_ranks: int = option(1, help="data-parallel trainer processes", ge=1)
    workers: int = option(1, help="environment worker processes", ge=1)
    threads: int | None = option(
        None, help="CPU threads of each engine and rank; default: all cores when strictly on-policy", ge=1
    )
    output_dir: Path = option(Path("runs"), help="folder that run folders are made in")
    run_name: str | None = option(
        None, help="name of the run folder; default: from model, estimator and time"
    )
    save_every: int = option(
        50, help="checkpoint every N steps, beside training; 0: only at the end, which is always saved", ge=0
    )
    keep_checkpoints: int = option(2, help="newest checkpoints that are kept", ge=1)
    keep_hours: float = option(0.0, help="checkpoints younger than this are kept, too", ge=0)
    keep_best: str | None = option(
        None,
        help="metric of evaluation, e.g. eval/NAME/pass@1: each evaluated version is saved, the best one kept",
    )
    record: bool = option(False, help="keep every trained batch in rollouts/, for molt replay")
    deterministic: bool = option(
        False, help="equal runs are equal bit by bit on one machine; engines answer one request at a time"
    )
    eval_every: int = option(
        0, help="evaluate every N steps, beside before and after; 0: only before and after", ge=0
    )
    eval_prompts: int = option(
        16, help="prompts of one evaluation; 0 turns it off (molt eval: the most prompts; 0: all)", ge=0
    )
    eval_samples: int = option(1, help="replies for each evaluation prompt (k of pass@k)", ge=1)
    eval_temperature: float = option(0.0, help="temperature of evaluation; 0 is greedy", ge=0)
    eval_concurrency: int = option(64, help="most replies of an evaluation in flight at once", ge=1)
    stop_at_reward: float | None = option(
        None, help="end early once the mean reward stays at or above this for three steps"
    )
    rollout_timeout_s: float = option(
        600.0, help="seconds after which a rollout is dropped as timed out", gt=0
    )
    env_timeout_s: float = option(
        120.0, help="seconds that one call of an environment or a grader may take", gt=0
    )
    ray_address: str | None = option(
        None, help="address of a running Ray cluster; default: a local one for this run"
    )
