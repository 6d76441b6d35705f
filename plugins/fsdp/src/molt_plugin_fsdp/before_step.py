"""What is constant during a step: log-probs of the policy before it, of a reference, and the correction's weights.

In: the rows of one rank. Out: for each row what its tokens carry into the loss. The pass over the policy is made
only if a correction or the loss asks for it. Collective where a pass is made: all ranks have equally many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from molt_core.api.correction import Correction, CorrectionBatch
from molt_plugin_fsdp import ranks
from molt_plugin_fsdp.policy import Policy
from molt_plugin_fsdp.row import Row


@frozen(kw_only=True, eq=False)
class Constants:
    """Of one row's N sampled tokens; see `molt_core.api.loss.TokenBatch`."""

    old_logprobs: Tensor
    weights: Tensor
    rollout_log_ratio: Tensor
    reference_logprobs: Tensor | None


def before_step(
    rows: Sequence[Row], policy: Policy, *, reference: Policy | None, correction: Correction | None,
    rollout_ratio: bool,
) -> tuple[list[Constants], Mapping[str, float]]:  # fmt: skip
    """Constants of each row, and metrics of the correction."""
    sizes = [len(row.targets) for row in rows]
    behaviour = torch.from_numpy(np.concatenate([row.behaviour_logprobs for row in rows]))
    rollouts = torch.from_numpy(np.concatenate([row.rollout_index for row in rows]))
    old, weights, ratios = behaviour, torch.ones_like(behaviour), torch.zeros_like(behaviour)
    metrics: Mapping[str, float] = {}
    if correction is not None or rollout_ratio:
        current = _logprobs(policy, rows)
        if correction is not None:
            batch = CorrectionBatch(logprobs=current, behaviour_logprobs=behaviour, rollout_index=rollouts)
            made = correction.weights(batch)
            old, weights = current, made.weights
            metrics = _kept(made.kept, made.weights)
        elif rollout_ratio:
            counts = torch.from_numpy(np.concatenate([row.rollout_tokens for row in rows]))
            ratios = _rollout_sums(current - behaviour, rollouts) / counts
    frozen_logprobs = None if reference is None else _logprobs(reference, rows).split(sizes)
    return [
        Constants(
            old_logprobs=part[0], weights=part[1], rollout_log_ratio=part[2],
            reference_logprobs=None if frozen_logprobs is None else frozen_logprobs[number],
        )
        for number, part in enumerate(
            zip(old.split(sizes), weights.split(sizes), ratios.split(sizes), strict=True)
        )
    ], metrics  # fmt: skip


def _logprobs(policy: Policy, rows: Sequence[Row]) -> Tensor:
    """[N over all rows] on the CPU."""
    with torch.no_grad():
        return torch.cat([policy(row)[0].cpu() for row in rows])


def _rollout_sums(values: Tensor, rollouts: Tensor) -> Tensor:
    """[N] sum over the tokens of each token's rollout."""
    if len(values) == 0:
        return values
    sums = values.new_zeros(int(rollouts.max()) + 1).index_add_(0, rollouts, values)
    return sums[rollouts]


def _kept(kept: Tensor, weights: Tensor) -> Mapping[str, float]:
    totals = ranks.summed(
        {
            "kept": kept.sum(), "weight": weights.double().sum(),
            "tokens": torch.tensor(float(len(kept))),
        }
    )  # fmt: skip
    return {
        "correction/left_out_rate": 1.0 - totals["kept"] / totals["tokens"],
        "correction/weight_mean": totals["weight"] / totals["tokens"],
    }
