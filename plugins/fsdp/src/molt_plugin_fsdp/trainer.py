"""One rank of the trainer: the order of things in a step, and what is written where.

In: a rank's share of the optimizer window. Out: metrics, published weights, checkpoints. What a row, a
log-probability, a step or a file is, is decided in the modules beside this one.

The loss of a micro-batch is already divided by the window's counts, so gradients are summed over micro-batches
and ranks. FSDP averages over ranks, which is undone by scaling with their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from molt_core.api.engine import Weights
from molt_core.api.facts import CRITIC, ENTROPY_GRADIENT, REFERENCE_MODEL, ROLLOUT_RATIO
from molt_core.api.loss import AdaptiveLoss, TokenBatch
from molt_core.api.trainer import Stateful, StepResult, TrainerContext, TrainerParts
from molt_core.errors import RunError
from molt_core.experience import TrainBatch, TrainItem, Window
from molt_plugin_fsdp import ranks
from molt_plugin_fsdp.before_step import Constants, Models, before_step
from molt_plugin_fsdp.checkpoint import load_state, save_state
from molt_plugin_fsdp.critic import Critic
from molt_plugin_fsdp.export import export_model
from molt_plugin_fsdp.metrics import StepSums
from molt_plugin_fsdp.model import check_attention, frozen_policy, load_model, named_tensors, shard
from molt_plugin_fsdp.optimizer import Optimizer
from molt_plugin_fsdp.packing import pack
from molt_plugin_fsdp.policy import Policy
from molt_plugin_fsdp.progress import Progress
from molt_plugin_fsdp.row import Row, empty_row
from molt_plugin_fsdp.spec import FsdpOptions
from molt_plugin_fsdp.weights_file import write_weights

WEIGHTS_FILE: Final = "weights.safetensors"


class FsdpTrainer:
    """Every method is collective: all ranks call it, or the others wait until the timeout."""

    def __init__(self, options: FsdpOptions, context: TrainerContext, parts: TrainerParts) -> None:
        self._options = options
        self._context = context
        self._parts = parts
        self._dtype: torch.dtype = getattr(torch, context.dtype)
        self._policy: Policy
        self._reference: Policy | None = None
        self._critic: Critic | None = None
        self._optimizer: Optimizer

    def start(self) -> None:
        """Load, shard, make the optimizer. Raises RunError for models that can't be trained here."""
        torch.set_num_threads(self._context.num_threads)
        if self._context.deterministic:
            torch.use_deterministic_algorithms(True)
        mesh = ranks.join(self._context, self._options.collective_timeout_s)
        model = load_model(self._context.model_folder)
        check_attention(model, max_length=self._context.max_length, share_prompts=self._options.share_prompts)
        model.train()
        if self._options.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        self._policy = Policy(
            model,
            temperature=self._context.temperature,
            logit_rows=self._options.logit_rows,
            entropy_gradient=ENTROPY_GRADIENT in self._context.facts,
        )
        shard(self._policy, mesh, self._dtype)
        if REFERENCE_MODEL in self._context.facts:
            self._reference = frozen_policy(
                self._context.reference_folder or self._context.model_folder,
                mesh, self._dtype, temperature=self._context.temperature, logit_rows=self._options.logit_rows,
            )  # fmt: skip
        if CRITIC in self._context.facts:
            self._critic = Critic(self._context, self._options, mesh, self._dtype)
        self._mid_step = False
        """A step has begun to change something, and has not ended."""
        params = dict(self._policy.model.named_parameters())
        self._optimizer = Optimizer(params, self._options, self._context.lr)

    def step(self, batch: TrainBatch) -> StepResult:
        """One optimizer step over the window.

        Raises:
            RunError: the ranks hold another number of sampled tokens than the window says, or segments without the
                likeliest tokens that the run is to have.
        """
        _check_top_logprobs(batch.items, self._context.top_logprobs)
        rows = pack(
            batch.items,
            max_tokens=self._options.tokens_per_micro_batch,
            share_prompts=self._options.share_prompts,
        )
        num_rows, num_tokens = ranks.most_and_total(len(rows), sum(len(row.targets) for row in rows))
        if num_tokens != batch.window.num_tokens or num_tokens == 0:
            raise RunError(
                f"the window says {batch.window.num_tokens} sampled tokens and the ranks hold {num_tokens}: "
                "the loss would be divided by the wrong number"
            )
        rows += [empty_row(self._context.top_logprobs)] * (num_rows - len(rows))
        models = Models(
            policy=self._policy,
            reference=self._reference,
            critic=None if self._critic is None else self._critic.model,
        )
        # what moves before the policy does
        self._mid_step = self._critic is not None or isinstance(self._parts.estimator, Stateful)
        known, corrected = before_step(
            rows, models, self._parts, rollout_ratio=ROLLOUT_RATIO in self._context.facts
        )
        critic = {} if self._critic is None else self._critic.step(rows, known, batch.window)
        if self._critic is not None and self._critic.warms_up:
            applied = bool(critic["critic/applied"])
            self._mid_step = False
            return StepResult(applied=applied, metrics={**critic, **corrected, "policy/frozen": 1.0})
        sums = StepSums()
        for row, constants in zip(rows, known, strict=True):
            self._accumulate(row, constants, batch.window, sums)
        loss, means = sums.reduce(num_tokens)
        lr = self._optimizer.lr
        self._mid_step = True
        applied, grad_norm = self._optimizer.step(loss_is_finite=math.isfinite(loss))
        metrics = {
            **means,
            **corrected,
            **critic,
            **(self._adapt(means, batch.window) if applied else {}),
            "policy/grad_norm": grad_norm,
            "policy/lr": lr,
            "trainer/micro_batches": float(num_rows),
        }
        self._mid_step = False
        return StepResult(applied=applied, metrics=metrics)

    def _accumulate(self, row: Row, constants: Constants, window: Window, sums: StepSums) -> None:
        logprobs, entropy, top = self._policy(row)

        def on_device(values: Any) -> Any:
            return None if values is None else torch.as_tensor(values, device=logprobs.device)

        tokens = TokenBatch(
            logprobs=logprobs,
            behaviour_logprobs=on_device(row.behaviour_logprobs),
            old_logprobs=on_device(constants.old_logprobs),
            weights=on_device(constants.weights),
            rollout_log_ratio=on_device(constants.rollout_log_ratio),
            reference_logprobs=on_device(constants.reference_logprobs),
            top_logprobs=top if self._context.top_logprobs else None,
            top_reference_logprobs=on_device(constants.top_reference_logprobs),
            centering=on_device(constants.centering),
            rollout_tokens=on_device(row.rollout_tokens),
            group_tokens=on_device(row.group_tokens),
            advantages=on_device(constants.advantages),
            entropy=entropy,
            rollout_index=on_device(row.rollout_index),
            group_index=on_device(row.group_index),
            window=window,
        )
        output = self._parts.loss(tokens)
        (output.loss * self._context.world_size).backward()
        sums.add(tokens, output, len(row.token_ids))

    def _adapt(self, means: Mapping[str, float], window: Window) -> Mapping[str, float]:
        loss = self._parts.loss
        return loss.after_step(means, window.num_rollouts) if isinstance(loss, AdaptiveLoss) else {}

    def publish(self, version: int, folder: Path) -> Weights | None:
        """Replaces the file of the version before; who has that one open keeps it."""
        path = folder / WEIGHTS_FILE
        num_bytes = write_weights(path, named_tensors(self._policy), self._dtype, version)
        return Weights(version=version, path=path, num_bytes=num_bytes) if self._context.rank == 0 else None

    def save(self, folder: Path) -> None:
        """Raises RunError after an error in the middle of a step: whoever goes on from there would train it twice."""
        if self._mid_step:
            raise RunError(
                "an error left the trainer between two steps, and that is not saved", reason="mid_step"
            )
        save_state(folder, self._state(), Progress.of(self._optimizer, self._critic, self._parts))

    def load(self, folder: Path) -> None:
        """Raises RunError when the folder is incomplete or holds the state of another model or other plugins."""
        load_state(folder, self._state()).restore(self._optimizer, self._critic, self._parts)

    def export(self, folder: Path) -> None:
        export_model(folder, self._context.model_folder, named_tensors(self._policy), self._dtype)

    def stop(self) -> None:
        ranks.leave()

    def _state(self) -> dict[str, Tensor]:
        weights = {f"weight.{name}": tensor for name, tensor in named_tensors(self._policy).items()}
        critic = {} if self._critic is None else self._critic.state()
        return weights | self._optimizer.moments() | critic


def _check_top_logprobs(items: Sequence[TrainItem], wanted: int) -> None:
    for item in items:
        ids = item.segment.top_ids
        found = 0 if ids is None else ids.shape[1]
        if found != wanted:
            raise RunError(
                f"rollout {item.rollout_index} of the step has the log-probs of the {found} likeliest tokens beside "
                f"each sampled one, wanted {wanted}: its engine or gateway did not record what it was asked for"
            )
