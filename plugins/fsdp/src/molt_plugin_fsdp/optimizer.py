"""AdamW on the shards, and the rule when a step is applied.

In: gradients of one window on every parameter. Out: whether the step was applied, and the gradient's norm.
Moments are float32 like the master weights, so updates far below bfloat16's resolution are not lost.

Source: Loshchilov and Hutter, AdamW (arXiv 1711.05101). Left out: schedules other than a linear warmup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from molt_plugin_fsdp.spec import FsdpOptions

MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class Optimizer:
    def __init__(self, params: Mapping[str, nn.Parameter], options: FsdpOptions, lr: float) -> None:
        """Args: params by name, sharded; lr after warmup."""
        self._params = dict(params)
        self._options = options
        self._lr = lr
        self._adamw = torch.optim.AdamW(
            self._params.values(), lr=lr, betas=(options.beta1, options.beta2), eps=options.eps,
            weight_decay=options.weight_decay, fused=True,
        )  # fmt: skip
        # made here and not by the first step, so that a checkpoint has one shape at any time
        for param in self._params.values():
            self._adamw.state[param] = {
                "step": torch.zeros((), dtype=torch.float32, device=param.device),
                **{moment: torch.zeros_like(param) for moment in MOMENTS},
            }
        self.num_steps = 0
        """Steps that were applied."""

    @property
    def lr(self) -> float:
        """Of the next step."""
        return self._lr * min(1.0, (self.num_steps + 1) / max(self._options.warmup_steps, 1))

    def step(self, *, loss_is_finite: bool) -> tuple[bool, float]:
        """Clip and apply the gradients, then drop them.

        Returns:
            Whether the step was applied, and the global norm before clipping. If loss or norm is not finite,
            weights, moments and counts stay as they are. Equal on all ranks if `loss_is_finite` is.
        """
        norm = clip_grad_norm_(self._params.values(), self._options.max_grad_norm)
        grad_norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        applied = loss_is_finite and bool(torch.isfinite(torch.tensor(grad_norm)))
        if applied:
            for group in self._adamw.param_groups:
                group["lr"] = self.lr
            self._adamw.step()
            self.num_steps += 1
        self._adamw.zero_grad(set_to_none=True)
        return applied, grad_norm

    def moments(self) -> dict[str, Tensor]:
        """Both moments of every parameter, by `<moment>.<name>`; the tensors that the optimizer works on."""
        return {
            f"{moment}.{name}": self._adamw.state[param][moment]
            for name, param in self._params.items()
            for moment in MOMENTS
        }

    def set_num_steps(self, num_steps: int) -> None:
        """Go on after `num_steps` applied steps, with the moments that belong to them."""
        self.num_steps = num_steps
        for param in self._params.values():
            self._adamw.state[param]["step"].fill_(num_steps)
