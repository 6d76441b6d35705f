"""The core's own rules: small functions from a plan to what is wrong with its numbers.

Plugins bring rules of the same form in their specs. The files that --data names are looked at
in `molt_core.plan.data_findings`, the model's folder in `molt_core.plan.model_facts`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from molt_core.api.findings import Finding, Source, error, warning
from molt_core.api.plan_view import PlanView
from molt_core.api.spec import AgentSpec, EnvironmentSpec, EstimatorSpec, Rule
from molt_core.plan.model_facts import run_max_length
from molt_core.plan.reference import reference_is_usable


def groups_are_compared(view: PlanView) -> Iterator[Finding]:
    """An estimator that compares rollouts of one prompt needs several of them."""
    for part in view.parts.get(EstimatorSpec.slot, ()):
        spec = part.spec
        if isinstance(spec, EstimatorSpec) and spec.needs_groups and view.run.group_size < 2:
            message = f"estimator {spec.name!r} compares rollouts of one prompt, but there is one per prompt"
            fix = "--group-size 8, or an estimator that works without groups: molt plugins list"
            yield error("M301", message, view.source("group_size"), Source(spec.summary, part.owner), fix=fix)


def training_samples(view: PlanView) -> Iterator[Finding]:
    """Temperature 0 has one reply for each prompt and no log-probs to train on."""
    if view.run.temperature <= 0:
        message = f"temperature must be > 0 in training, got {view.run.temperature:g}"
        fix = "--temperature 1.0; evaluation has --eval-temperature"
        yield error("M302", message, view.source("temperature"), fix=fix)


def lengths_fit(view: PlanView) -> Iterator[Finding]:
    """max_tokens < max_length <= what the model allows."""
    run, own = view.run, view.model.max_length
    own_source = Source(f"the model allows {own} tokens", run.model)
    if run.max_length is not None and own is not None and run.max_length > own:
        message = f"max_length is {run.max_length}, the model allows {own} tokens"
        yield error("M304", message, view.source("max_length"), own_source, fix=f"--max-length {own}")
    limit = run_max_length(run, own)
    if own is not None:
        limit = min(limit, own)
    if run.max_tokens >= limit:
        message = f"max_tokens is {run.max_tokens}, which leaves no room for a prompt within {limit} tokens"
        because = (
            view.source("max_tokens"),
            *((own_source,) if limit == own else (view.source("max_length"),)),
        )
        yield error("M303", message, *because, fix=f"--max-tokens {max(1, limit // 2)}")


def output_is_writable(view: PlanView) -> Iterator[Finding]:
    """The run folder can be made, and is not there yet."""
    folder = view.run.output_dir
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not there.is_dir():
        message = f"output_dir {folder} can't be made: {there} is a file"
        yield error("M305", message, view.source("output_dir"), fix="--output-dir FOLDER")
    elif not os.access(there, os.W_OK | os.X_OK):
        message = f"output_dir {folder} can't be written: no permission in {there}"
        yield error("M305", message, view.source("output_dir"), fix="--output-dir FOLDER")
    name = view.run.run_name
    if name is None:
        return
    if Path(name).name != name or name in ("", ".."):
        message = f"run_name must be the name of a folder, got {name!r}"
        yield error("M306", message, view.source("run_name"), fix="--output-dir says where, --run-name what")
    elif os.path.exists(folder / name):
        message = f"{folder / name} exists, and a run is never overwritten"
        yield error(
            "M306",
            message,
            view.source("run_name"),
            fix=f"another --run-name; molt resume {folder / name} goes on in it",
        )


def evaluation_is_possible(view: PlanView) -> Iterator[Finding]:
    """Options of evaluation agree with each other, and there are tasks for it."""
    run = view.run
    if run.eval_prompts == 0:
        for option in ("eval_every", "eval_data", "keep_best"):
            if getattr(run, option):
                message = f"{option} is given, but evaluation is off: eval_prompts is 0"
                because = (view.source(option), view.source("eval_prompts"))
                yield error("M307", message, *because, fix="--eval-prompts 16")
        return
    environment = _environment(view)
    is_made = environment is not None and environment.makes_tasks
    if run.eval_data is None and not is_made and (environment or AgentSpec.slot in view.parts):
        who = f"environment {environment.name!r} makes" if environment else "the agent makes"
        message = f"no tasks to evaluate on: {who} none of its own"
        because = (view.source("eval_prompts"), view.source("eval_data"))
        # nobody asked for it: then a run without evaluation is what is meant, and worth a word
        asked = "eval_prompts" in view.origins or run.eval_every > 0
        level = error if asked else warning
        yield level("M308", message, *because, fix="--eval-data FILE.jsonl, or --eval-prompts 0")
    if run.eval_every > run.steps:
        message = f"eval_every is {run.eval_every}, but the run ends after {run.steps} steps"
        yield warning("M309", message, view.source("eval_every"), view.source("steps"))
    yield from evaluation_samples(view)


def evaluation_samples(view: PlanView) -> Iterator[Finding]:
    """Several replies to an evaluation prompt are worth it if they can differ."""
    run = view.run
    if run.eval_samples > 1 and run.eval_temperature == 0:
        message = (
            f"all {run.eval_samples} evaluation replies to a prompt will be equal: eval_temperature is 0"
        )
        because = (view.source("eval_samples"), view.source("eval_temperature"))
        yield warning("M310", message, *because, fix="--eval-temperature 1.0")


BEST: Final = re.compile(
    r"(pass|avg)@(?P<k>\d+)|reward_mean|length_mean|truncated_rate|failed_rate|abstained_rate|env/.+"
)
"""Metrics of an evaluation without `eval/<set>/`; what an environment reports is known only when it does."""


def best_is_measured(view: PlanView) -> Iterator[Finding]:
    """What says which checkpoint is best is a metric that evaluation will have."""
    run = view.run
    if run.keep_best is None or run.eval_prompts == 0:
        return
    led_by = view.parts.get(EnvironmentSpec.slot) or view.parts.get(AgentSpec.slot) or ()
    prefix = f"eval/{led_by[0].spec.name}/" if led_by else "eval/"
    found = BEST.fullmatch(run.keep_best.removeprefix(prefix))
    if not run.keep_best.startswith(prefix) or not found or int(found["k"] or 1) > run.eval_samples:
        message = f"keep_best is {run.keep_best!r}, which no evaluation of this run will have"
        because = (view.source("keep_best"), view.source("eval_samples"))
        yield error("M318", message, *because, fix=f"--keep-best {prefix}pass@{run.eval_samples}")


def ranks_have_work(view: PlanView) -> Iterator[Finding]:
    """A rank without a single rollout slows the others down."""
    run = view.run
    num_rollouts = run.group_size * run.prompts_per_step
    if num_rollouts < run.trainer_ranks:
        message = f"a step has {num_rollouts} rollouts for {run.trainer_ranks} trainer ranks: some have nothing to do"
        options = ("group_size", "prompts_per_step", "trainer_ranks")
        yield warning("M311", message, *map(view.source, options), fix=f"--trainer-ranks {num_rollouts}")


def engines_are_enough(view: PlanView) -> Iterator[Finding]:
    """A run can't wait for more engines than it has."""
    run = view.run
    if run.min_engines is not None and run.min_engines > run.engines:
        message = (
            f"the run would wait for ever: min_engines is {run.min_engines}, and engines is {run.engines}"
        )
        because = (view.source("min_engines"), view.source("engines"))
        yield error("M317", message, *because, fix=f"--engines {run.min_engines}")


def agents_are_graded(view: PlanView) -> Iterator[Finding]:
    """An agent leads the conversation; someone must say what it was worth, and nobody else may lead."""
    environment = _environment(view)
    for part in view.parts.get(AgentSpec.slot, ()):
        spec = part.spec
        who = Source(spec.summary, part.owner)
        if environment is None and isinstance(spec, AgentSpec) and not spec.grades:
            message = (
                f"agent {spec.name!r} does not grade what it does, and no environment is chosen that would"
            )
            yield error("M312", message, who, fix="--env NAME of one that grades a reply: verify")
        elif environment is not None and environment.multi_turn:
            message = (
                f"agent {spec.name!r} and environment {environment.name!r} both want to lead the conversation"
            )
            fix = "leave one of them out, or an environment that grades one reply"
            yield error("M313", message, who, Source(environment.summary), fix=fix)


def _environment(view: PlanView) -> EnvironmentSpec | None:
    specs = [part.spec for part in view.parts.get(EnvironmentSpec.slot, ())]
    return next((spec for spec in specs if isinstance(spec, EnvironmentSpec)), None)


def determinism_is_possible(view: PlanView) -> Iterator[Finding]:
    """Which version samples a token beside training is a matter of seconds."""
    if view.run.deterministic and view.run.max_staleness > 0:
        message = "runs can't be equal bit by bit while sampling and training overlap"
        because = (view.source("deterministic"), view.source("max_staleness"))
        yield error("M316", message, *because, fix="--max-staleness 0")


CORE_RULES: Final[tuple[Rule, ...]] = (
    groups_are_compared,
    training_samples,
    lengths_fit,
    output_is_writable,
    evaluation_is_possible,
    best_is_measured,
    ranks_have_work,
    engines_are_enough,
    agents_are_graded,
    reference_is_usable,
    determinism_is_possible,
)
EVAL_RULES: Final[tuple[Rule, ...]] = (
    lengths_fit, output_is_writable, evaluation_samples, engines_are_enough, agents_are_graded,
)  # fmt: skip
