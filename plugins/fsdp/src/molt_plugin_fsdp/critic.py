"""The critic: a second model with one number per token, its loss and its optimizer step.

    L = ½ max((V − G)², (V_old + clamp(V − V_old, ±clip) − G)²), mean over the window's sampled tokens

In: rows and their constants. Out: V [N], the value of the prefix from which a sampled token is predicted. The
head starts at zero, so that values are 0 and not noise until something was learned. V_old are the values before the
step: the first pass over a batch begins there, and what follows may not go on without bounds.

Source: Schulman et al., PPO (arXiv 1707.06347), with the clipped value loss of its reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from attrs import evolve
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from molt_core.api.trainer import TrainerContext
from molt_core.experience import Window
from molt_plugin_fsdp import ranks
from molt_plugin_fsdp.before_step import Constants
from molt_plugin_fsdp.model import load_model, shard
from molt_plugin_fsdp.optimizer import Optimizer
from molt_plugin_fsdp.policy import hidden_states
from molt_plugin_fsdp.row import Row
from molt_plugin_fsdp.spec import FsdpOptions


class ValueModel(nn.Module):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.model = load_model(source).base_model
        self.head = nn.Linear(self.model.get_input_embeddings().embedding_dim, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, row: Row) -> Tensor:
        """[N] float32."""
        hidden = hidden_states(self.model, row)
        at = hidden.index_select(0, torch.from_numpy(row.predictors).to(hidden.device))
        values: Tensor = self.head(at).float().sum(-1)  # of one; FSDP wants no view of a tensor
        return values


def value_errors(values: Tensor, old: Tensor, returns: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """[N] half the larger of the two squared errors, with gradient; and [N] bool, whether that is the bounded one."""
    near = values.clamp(old - clip, old + clip)
    plain, bounded = (values - returns).square(), (near - returns).square()
    return torch.maximum(plain, bounded) / 2, bounded > plain


class Critic:
    """Value model and its optimizer. Every method is collective."""

    def __init__(
        self, context: TrainerContext, options: FsdpOptions, mesh: DeviceMesh, dtype: torch.dtype
    ) -> None:
        self._options = options
        self._world_size = context.world_size
        self.model = ValueModel(options.critic_model or context.model_folder)
        shard(self.model, mesh, dtype)
        own = evolve(options, warmup_steps=0)
        self.optimizer = Optimizer(dict(self.model.named_parameters()), own, options.critic_lr)

    def step(self, rows: Sequence[Row], known: Sequence[Constants], window: Window) -> Mapping[str, float]:
        """One optimizer step for each pass over the returns; metrics, equal on all ranks."""
        passes = [self._pass(rows, known, window) for _ in range(self._options.critic_epochs)]
        first, last = passes[0], passes[-1]
        return {
            **first,
            "critic/clip_ratio": last["critic/clip_ratio"],
            "critic/applied": min(one["critic/applied"] for one in passes),
        }

    @property
    def warms_up(self) -> bool:
        """Whether the batch that it has just learned from was one for the critic alone."""
        return self.optimizer.num_steps <= self._options.critic_warmup_steps * self._options.critic_epochs

    def _pass(self, rows: Sequence[Row], known: Sequence[Constants], window: Window) -> Mapping[str, float]:
        total, clipped = torch.zeros(()), torch.zeros(())
        for row, constants in zip(rows, known, strict=True):
            values = self.model(row)
            assert constants.values is not None
            assert constants.returns is not None
            errors, was_clipped = value_errors(
                values,
                constants.values.to(values),
                constants.returns.to(values),
                self._options.critic_value_clip,
            )
            loss = errors.sum() / window.num_tokens
            torch.autograd.backward(loss * self._world_size)
            total = total + loss.detach().cpu()
            clipped = clipped + was_clipped.sum().cpu()
        sums = ranks.summed({"loss": total, "clipped": clipped})
        applied, grad_norm = self.optimizer.step(loss_is_finite=math.isfinite(sums["loss"]))
        return {
            "critic/loss": sums["loss"],
            "critic/clip_ratio": sums["clipped"] / window.num_tokens,
            "critic/grad_norm": grad_norm,
            "critic/applied": float(applied),
        }

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint, by name."""
        weights = {f"critic.weight.{name}": tensor for name, tensor in self.model.state_dict().items()}
        return weights | {f"critic.{name}": tensor for name, tensor in self.optimizer.moments().items()}
