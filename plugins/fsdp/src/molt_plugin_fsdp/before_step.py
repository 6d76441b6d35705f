"""What is constant during a step: log-probs before it, a reference's, a critic's values, weights, advantages.

In: the rows of one rank. Out: for each row what its tokens carry into the losses. Each pass over a model is made
only if a plugin asks for it. Collective: all ranks have equally many rows and ask for the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from attrs import frozen
from torch import Tensor, nn

from molt_core.api.correction import CorrectionBatch
from molt_core.api.estimator import FloatVector, TokenAdvantages, TokenRollouts
from molt_core.api.trainer import TrainerParts
from molt_plugin_fsdp import ranks
from molt_plugin_fsdp.row import Row


@frozen(kw_only=True, eq=False)
class Models:
    """Modules that turn a row into [N] numbers, or a tuple that begins with them."""

    policy: nn.Module
    reference: nn.Module | None = None
    critic: nn.Module | None = None


@frozen(kw_only=True, eq=False)
class Constants:
    """Of one row's N sampled tokens; see `molt_core.api.loss.TokenBatch`."""

    old_logprobs: Tensor
    weights: Tensor
    rollout_log_ratio: Tensor
    advantages: Tensor
    reference_logprobs: Tensor | None
    top_reference_logprobs: Tensor | None
    centering: Tensor | None
    values: Tensor | None
    returns: Tensor | None


def before_step(
    rows: Sequence[Row], models: Models, parts: TrainerParts, *, rollout_ratio: bool
) -> tuple[list[Constants], Mapping[str, float]]:
    """Constants of each row, and metrics of correction and estimator."""
    behaviour = _joined(rows, "behaviour_logprobs")
    rollouts = _joined(rows, "rollout_index")
    reference = (None, None) if models.reference is None else _logprobs(models.reference, rows)
    vectors: dict[str, Tensor | None] = {
        "old_logprobs": behaviour,
        "weights": torch.ones_like(behaviour),
        "rollout_log_ratio": torch.zeros_like(behaviour),
        "advantages": _joined(rows, "advantages"),
        "reference_logprobs": reference[0],
        "top_reference_logprobs": reference[1],
        "centering": None,
        "values": None if models.critic is None else _values(models.critic, rows),
        "returns": None,
    }
    metrics: Mapping[str, float] = {}
    current, top = behaviour, None
    compared = parts.estimator is not None and models.reference is not None
    if parts.correction is not None or rollout_ratio or compared:
        current, top = _logprobs(models.policy, rows)
    if parts.correction is not None:
        batch = CorrectionBatch(
            logprobs=current,
            behaviour_logprobs=behaviour,
            rollout_index=rollouts,
            top_logprobs=top,
            top_behaviour_logprobs=None if top is None else _joined(rows, "top_behaviour_logprobs"),
        )
        made = parts.correction.weights(batch)
        vectors |= {"old_logprobs": current, "weights": made.weights, "centering": made.centering}
        metrics = _kept(made.kept, made.weights)
    elif rollout_ratio:
        counts = _joined(rows, "rollout_tokens")
        vectors["rollout_log_ratio"] = _rollout_sums(current - behaviour, rollouts) / counts
    if parts.estimator is not None:
        order = _order(rows)
        moved = None if current is behaviour else current - behaviour
        seen = _token_rollouts(rows, order, current, vectors, moved)
        made_here = parts.estimator.token_advantages(seen, _summed)
        vectors |= _scattered(made_here, order)
        metrics = {**metrics, **made_here.metrics}
    return _by_row(vectors, [len(row.targets) for row in rows]), metrics


def _joined(rows: Sequence[Row], name: str) -> Tensor:
    return torch.from_numpy(np.concatenate([getattr(row, name) for row in rows]))


def _logprobs(policy: nn.Module, rows: Sequence[Row]) -> tuple[Tensor, Tensor | None]:
    """[N over all rows] and [N, k] on the CPU; None for k = 0."""
    with torch.no_grad():
        made = [policy(row) for row in rows]
    logprobs, _, top = (torch.cat([part.cpu() for part in parts]) for parts in zip(*made, strict=True))
    return logprobs, top if top.shape[1] else None


def _values(critic: nn.Module, rows: Sequence[Row]) -> Tensor:
    """[N over all rows] on the CPU."""
    with torch.no_grad():
        return torch.cat([critic(row).cpu() for row in rows])


def _rollout_sums(values: Tensor, rollouts: Tensor) -> Tensor:
    """[N] sum over the tokens of each token's rollout."""
    if len(values) == 0:
        return values
    sums = values.new_zeros(int(rollouts.max()) + 1).index_add_(0, rollouts, values)
    return sums[rollouts]


def _order(rows: Sequence[Row]) -> np.ndarray:
    """[N] indices that put the tokens of each rollout in the order in which they were sampled."""
    names = ("token_index", "segment_index", "rollout_index")
    return np.lexsort([_joined(rows, name).numpy() for name in names])


def _token_rollouts(
    rows: Sequence[Row],
    order: np.ndarray,
    current: Tensor,
    vectors: Mapping[str, Tensor | None],
    moved: Tensor | None,
) -> TokenRollouts:
    """`moved` is log π before the step − log π as sampled."""

    def ordered(values: Tensor) -> FloatVector:
        return values.double().numpy()[order]

    rollouts = _joined(rows, "rollout_index").numpy()[order]
    firsts = np.flatnonzero(np.diff(rollouts, prepend=-1))
    reference, values = vectors["reference_logprobs"], vectors["values"]
    return TokenRollouts(
        starts=np.append(firsts, len(rollouts)),
        rewards=ordered(_joined(rows, "token_rewards")),
        reference_log_ratio=None if reference is None else ordered(current - reference),
        sampler_log_ratio=None if moved is None else ordered(moved),
        values=None if values is None else ordered(values),
    )


def _scattered(made: TokenAdvantages, order: np.ndarray) -> dict[str, Tensor]:
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    vectors = {"advantages": made.advantages}
    if made.returns is not None:
        vectors["returns"] = made.returns
    return {name: torch.from_numpy(vector[back]).float() for name, vector in vectors.items()}


def _by_row(vectors: Mapping[str, Tensor | None], sizes: Sequence[int]) -> list[Constants]:
    split = {
        name: [None] * len(sizes) if vector is None else torch.split(vector, list(sizes))
        for name, vector in vectors.items()
    }
    return [
        Constants(**{name: parts[number] for name, parts in split.items()}) for number in range(len(sizes))
    ]


def _summed(vector: FloatVector) -> FloatVector:
    totals = ranks.summed({str(number): torch.tensor(value) for number, value in enumerate(vector)})
    return np.array([totals[str(number)] for number in range(len(vector))])


def _kept(kept: Tensor, weights: Tensor) -> Mapping[str, float]:
    left, weight, count = _summed(np.array([float((~kept).sum()), float(weights.sum()), float(len(kept))]))
    return {"correction/left_out_rate": left / count, "correction/weight_mean": weight / count}
