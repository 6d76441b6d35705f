"""Choices of loss, correction and estimator for the trainer, and a window that they all have something to say about."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from attrs import evolve, field, frozen
from molt_plugin_estimators import spec as estimators
from molt_plugin_fsdp.trainer import FsdpTrainer
from molt_plugin_losses import correction_spec as corrections
from molt_plugin_losses import spec as losses
from tiny_trainer import (
    AS_GRADIENT,
    plain_distributions,
    plain_logprobs,
    plain_model,
    window_items,
    with_top,
)
from torch import Tensor

from molt_core.api.trainer import TrainerParts
from molt_core.experience import Segment, TrainItem

WIDE: Final = {"clip_low": 0.4, "clip_high": 0.5}
BAND: Final = (0.7, 1.5)
NUM_TOP: Final = 5
"""Likeliest tokens that every segment has, whether asked for or not."""
LIKE_A_GRADIENT: Final = {**AS_GRADIENT, "critic_lr": 1.0}
"""As `AS_GRADIENT`, for the critic's weights too."""


@frozen
class Choice:
    """Specs with the options that are not default."""

    loss: tuple[Any, dict[str, Any]] = (losses.PPO, WIDE)
    correction: tuple[Any, dict[str, Any]] | None = None
    estimator: tuple[Any, dict[str, Any]] | None = None
    other_reference: bool = False
    trainer: dict[str, Any] = field(factory=dict)

    @property
    def chosen(self) -> list[tuple[Any, dict[str, Any]]]:
        return [one for one in (self.loss, self.correction, self.estimator) if one is not None]

    @property
    def facts(self) -> frozenset[str]:
        return frozenset().union(*(spec.facts(spec.options(**more)).provides for spec, more in self.chosen))

    def parts(self) -> TrainerParts:
        names = ("loss", "correction", "estimator")
        made = {name: getattr(self, name) for name in names}
        return TrainerParts(**{name: one and build(*one) for name, one in made.items()})


def build(spec: Any, options: dict[str, Any]) -> Any:
    module, _, attribute = spec.factory.partition(":")
    return getattr(import_module(module), attribute)(spec.options(**options))


def importance(**options: Any) -> tuple[Any, dict[str, Any]]:
    return corrections.IMPORTANCE, options


CHOICES: Final = {
    "ppo, prompts": Choice(loss=(losses.PPO, {**WIDE, "aggregation": "prompt-mean-token-mean", "dual_clip": 1.3})),
    "ppo, kl and entropy": Choice(loss=(losses.PPO, {**WIDE, "kl_coef": 0.2, "entropy_coef": 0.1})),
    "ppo, steered kl to the sampler": Choice(
        loss=(losses.PPO, {"kl_coef": 0.2, "kl_reference": "sampler", "kl_target": 1e-3, "kl_horizon": 50.0})
    ),
    "gspo": Choice(loss=(losses.GSPO, {"clip_low": 0.05, "clip_high": 0.05, "aggregation": "seq-mean-token-mean"})),
    "cispo": Choice(loss=(losses.CISPO, {"cap": 1.2, "aggregation": "seq-mean-token-sum"})),
    "mask by token": Choice(correction=importance(threshold=BAND)),
    "mask by rollout": Choice(correction=importance(level="seq", threshold=BAND)),
    "mask by geometric mean": Choice(correction=importance(level="geo", threshold=(0.9, 1.1))),
    "mask by divergence": Choice(correction=importance(level="seq", gate="binary_kl", threshold=(3e-4,))),
    "truncated": Choice(loss=(losses.CISPO, {}), correction=importance(mode="trunc", threshold=(1.1,))),
    "returns": Choice(estimator=(estimators.REINFORCE_PP, {"gamma": 0.9, "turn_rewards": True})),
    "returns with a steered penalty": Choice(
        estimator=(estimators.REINFORCE_PP, {"kl_coef": 0.1, "kl_target": 0.01, "kl_horizon": 50.0}),
        other_reference=True,
    ),
    "gae": Choice(estimator=(estimators.GAE, {"gamma": 0.95, "lam": 0.9})),
    "gae, a critic of two passes": Choice(
        estimator=(estimators.GAE, {"lam": 0.9}), trainer={"critic_epochs": 2, "critic_value_clip": 1e-3}
    ),
    "returns with a penalty against the sampler": Choice(
        estimator=(estimators.REINFORCE_PP, {"kl_coef": 0.1, "kl_form": "k3", "kl_reference": "sampler"})
    ),
    "distillation": Choice(estimator=(estimators.ON_POLICY_DISTILL, {}), other_reference=True),
    "top-k distillation": Choice(
        loss=(losses.TOPK_REVERSE_KL, {"top_k": 3, "aggregation": "seq-mean-token-mean"}), other_reference=True
    ),
    "score centering": Choice(correction=(corrections.SCORE_CENTERING, {"top_k": 3})),
    "score centering of clipped weights": Choice(
        loss=(losses.CISPO, {}),
        correction=(
            corrections.SCORE_CENTERING,
            {"top_k": NUM_TOP, "level": "token", "mode": "clip", "threshold": (0.8, 1.2)},
        ),
    ),
}  # fmt: skip


def settings(choice: Choice, teacher: Path) -> dict[str, Any]:
    """Keyword arguments of `tiny_trainer.started`."""
    reference = str(teacher) if choice.other_reference else ""
    return {
        "parts": choice.parts(), "facts": choice.facts, "reference_folder": reference, "top_logprobs": NUM_TOP,
        **choice.trainer,
    }  # fmt: skip


def state(trainer: FsdpTrainer) -> dict[str, Tensor]:
    """Copies of weights and moments, the critic's too. Collective."""
    return {name: tensor.full_tensor().clone() for name, tensor in trainer._state().items()}


def near_policy(folder: Path, seed: int = 0) -> list[TrainItem]:
    """Items that a policy near the model sampled, each with a reward in the middle and the rest at the end."""
    model = plain_model(folder)
    rng, noise = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    items = []
    for item in window_items(seed):
        with torch.no_grad():
            whole = plain_distributions(model, item.segment)
            own = plain_logprobs(model, item.segment).numpy()
        sampler = (whole + 0.3 * torch.randn(whole.shape, generator=noise)).log_softmax(-1)
        logprobs = np.zeros_like(item.segment.logprobs)
        logprobs[item.segment.sampled] = np.minimum(own + rng.normal(0, 0.3, len(own)), -1e-3)
        rewards = np.zeros(len(own), np.float32)
        rewards[len(own) // 2] += 0.5
        rewards[-1] += item.advantage - 0.5
        segment = with_top(evolve(item.segment, logprobs=logprobs), sampler, NUM_TOP)
        items.append(evolve(item, segment=segment, token_rewards=rewards))
    return items


def in_segments(items: Sequence[TrainItem]) -> list[TrainItem]:
    """The same rollouts with each sampled token in a segment of its own, all that came before as context."""
    return [
        evolve(
            item,
            segment=_one_token(item.segment, int(token), number),
            segment_index=number,
            token_rewards=item.token_rewards[number : number + 1],
        )
        for item in items
        for number, token in enumerate(np.flatnonzero(item.segment.sampled))
    ]


def _one_token(segment: Segment, token: int, number: int) -> Segment:
    sampled = np.zeros(token + 1, bool)
    sampled[token] = True
    return Segment(
        token_ids=segment.token_ids[: token + 1],
        sampled=sampled,
        logprobs=np.where(sampled, segment.logprobs[: token + 1], 0.0),
        versions=np.where(sampled, segment.versions[: token + 1], -1),
        top_ids=None if segment.top_ids is None else segment.top_ids[number : number + 1],
        top_logprobs=None if segment.top_logprobs is None else segment.top_logprobs[number : number + 1],
    )
