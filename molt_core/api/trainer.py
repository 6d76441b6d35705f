"""Slot `trainers`: holds the model and the optimizer, one object per rank.

API 1. The factory is called as `factory(options, context, parts)` in each rank's process, after
`torch.distributed` rendezvous variables are known. Every method is collective: all ranks are
called with the same arguments, apart from their own items in `step`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from attrs import field, frozen

if TYPE_CHECKING:
    from molt_core.api.correction import Correction
    from molt_core.api.engine import Weights
    from molt_core.api.estimator import TokenEstimator
    from molt_core.api.loss import Loss
    from molt_core.experience.batch import TrainBatch


@frozen(kw_only=True)
class TrainerContext:
    model_folder: str
    dtype: Literal["float32", "bfloat16"]
    """Compute dtype, and the dtype of published weights. Master weights are float32."""
    lr: float
    temperature: float
    """Sampling temperature that log-probs are computed at."""
    max_length: int
    seed: int
    rank: int
    world_size: int
    rendezvous: str
    """`tcp://host:port`, of rank 0; empty for a single rank."""
    num_threads: int
    deterministic: bool = False
    """The same steps must give the same bits; no operation whose result depends on the order of threads."""
    facts: frozenset[str] = field(default=frozenset(), converter=frozenset)
    """Facts of the plan: those of `molt_core.api.facts` that ask something of a trainer say so."""
    top_logprobs: int = 0
    """k, the likeliest tokens recorded beside each sampled one; where there are some, losses get log-probs of them."""
    reference_folder: str = ""
    """Model folder of the frozen reference, where the plan has one; empty: the policy as it starts."""


@frozen(kw_only=True)
class TrainerParts:
    """Plugins that a trainer calls."""

    loss: Loss
    correction: Correction | None = None
    estimator: TokenEstimator | None = None
    """Where the estimator makes advantages for tokens; those of the items are its rewards then."""


@runtime_checkable
class Stateful(Protocol):
    """A loss or an estimator that remembers earlier steps, as a steered coefficient does. Trainers save its state."""

    def state(self) -> Mapping[str, Any]:
        """JSON values, not empty, equal on all ranks."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        ...


@frozen(kw_only=True)
class StepResult:
    """What one optimizer step did; equal on all ranks."""

    applied: bool
    """False when loss or gradient was not finite: weights and optimizer are as before the step."""
    metrics: Mapping[str, float] = field(factory=dict)
    """`policy/loss`, `policy/grad_norm`, `policy/entropy`, `policy/clip_ratio`, `mismatch/kl`, …"""


class Trainer(Protocol):
    def start(self) -> None:
        """Load the model, shard it, make the optimizer."""
        ...

    def step(self, batch: TrainBatch) -> StepResult:
        """One optimizer step over the window."""
        ...

    def publish(self, version: int, folder: Path) -> Weights | None:
        """Write the weights in compute dtype for engines to load; rank 0 returns where, others None."""
        ...

    def save(self, folder: Path) -> None:
        """Model and optimizer state, exactly, for going on later."""
        ...

    def load(self, folder: Path) -> None:
        """The inverse of `save`."""
        ...

    def export(self, folder: Path) -> None:
        """A Hugging Face checkpoint: config, safetensors in compute dtype, tokenizer."""
        ...

    def stop(self) -> None: ...
