"""Losses, gradients and advantages against those of TRL 1.16 (trl.json; tests/harnesses/test_trl.py makes it again).

Equal: ppo's clip with one and two bounds, the dual clip where the advantage is negative (TRL: delta), gspo, cispo,
token-mean (dapo, bnpo), seq-mean-token-mean (grpo), k3, the entropy bonus, weights of a correction, and the
advantages of grpo, dr_grpo and rloo, abstaining rollouts included. Every difference, with its reason:

  1. grpo divides by std + 1e-4 in TRL, by std + 1e-9 here: small rewards would be scaled down.
     Equal with --estimator.eps 1e-4.
  2. dr_grpo's loss is divided by the longest allowed reply in TRL, as in the paper. Here it is the sum over a rollout's
     tokens: the constant belongs to the learning rate, and a flag for lengths would change it silently.
  3. TRL adds the KL to each token's loss before its aggregation; here it is a mean over tokens whatever the
     aggregation, so that kl_coef means the same beside all of them. Equal under token-mean.
  4. TRL computes advantages in float32: equal within 1e-6. Rewards that differ by rounding are not equal there.
  5. delta bounds good tokens too where it is below 1 + epsilon_high; the dual clip is for bad ones
     only, as in its paper.

Not compared, as the two mean different things by one name: TRL's RLOO loss clips the ratio of whole sequences (a
product, not a mean) and takes the KL off the reward before the baseline; its sequence-level vLLM corrections weigh
tokens by the sequence's ratio, where `importance` keeps each token's own and only decides who stays; gradient
accumulation and ranks enter TRL's denominators, where here the window is counted once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from molt_plugin_estimators.dr_grpo import DrGrpo
from molt_plugin_estimators.grpo import Grpo
from molt_plugin_estimators.rloo import Rloo
from molt_plugin_estimators.spec import GrpoOptions
from molt_plugin_losses.cispo import CispoLoss
from molt_plugin_losses.gspo import GspoLoss
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import CispoOptions, GspoOptions, PpoOptions
from torch import Tensor

from molt_core.api.estimator import RewardBatch
from molt_core.api.loss import TokenBatch
from molt_core.api.options import NoOptions
from molt_core.experience.batch import Window

TRL: dict[str, Any] = json.loads(Path(__file__).with_name("trl.json").read_text(encoding="utf-8"))
GIVEN = {name: torch.tensor(values, dtype=torch.float64) for name, values in TRL["inputs"].items()}
MASK = GIVEN["mask"].bool()
LONGEST = MASK.shape[1]
MEAN_OF_MEANS = {"aggregation": "seq-mean-token-mean"}

OURS: dict[str, Any] = {
    "grpo": PpoLoss(PpoOptions(**MEAN_OF_MEANS)),
    "grpo, two bounds": PpoLoss(PpoOptions(clip_low=0.1, clip_high=0.3, **MEAN_OF_MEANS)),
    "grpo, delta": PpoLoss(PpoOptions(dual_clip=1.25, **MEAN_OF_MEANS)),
    "bnpo": PpoLoss(PpoOptions()),
    "dapo": PpoLoss(PpoOptions()),
    "dapo, beta": PpoLoss(PpoOptions(kl_coef=0.1)),
    "grpo, beta": PpoLoss(PpoOptions(kl_coef=0.1, **MEAN_OF_MEANS)),
    "dapo, entropy": PpoLoss(PpoOptions(entropy_coef=0.01)),
    "dapo, weights": PpoLoss(PpoOptions()),
    "dr_grpo": PpoLoss(PpoOptions(aggregation="seq-mean-token-sum")),
    "gspo": GspoLoss(GspoOptions(clip_low=0.05, clip_high=0.1, **MEAN_OF_MEANS)),
    "cispo": CispoLoss(CispoOptions(cap=1.2)),
}


def flat(values: Tensor) -> Tensor:
    """[N] the sampled tokens of [B, T], one sequence after the other."""
    return values[MASK]


def tokens(logprobs: Tensor, *, weighted: bool) -> TokenBatch:
    lengths = MASK.sum(1)
    sequence = torch.arange(len(MASK))[:, None].expand_as(MASK)[MASK]
    ratio = ((GIVEN["new"] - GIVEN["old"]) * MASK).sum(1) / lengths
    weights = flat(GIVEN["weights"]) if weighted else torch.ones_like(flat(GIVEN["new"]))
    return TokenBatch(
        logprobs=logprobs, behaviour_logprobs=flat(GIVEN["old"]), old_logprobs=flat(GIVEN["old"]),
        advantages=GIVEN["advantages"][sequence], entropy=flat(GIVEN["entropy"]), weights=weights,
        rollout_log_ratio=ratio[sequence], reference_logprobs=flat(GIVEN["reference"]),
        rollout_tokens=lengths[sequence].double(), group_tokens=lengths.sum().expand_as(sequence).double(),
        rollout_index=sequence, group_index=torch.zeros_like(sequence),
        window=Window(num_tokens=int(MASK.sum()), num_rollouts=len(MASK), num_groups=1),
    )  # fmt: skip


def expected(name: str) -> tuple[Tensor, Tensor]:
    """TRL's loss and gradient, with the listed differences accounted for."""
    made = TRL["losses"][name]
    loss = torch.tensor(made["loss"], dtype=torch.float64)
    gradient = flat(torch.tensor(made["gradient"], dtype=torch.float64))
    if name == "dr_grpo":
        return loss * LONGEST, gradient * LONGEST
    if name == "grpo, beta":
        logprobs = GIVEN["new"].clone().requires_grad_()
        d = GIVEN["reference"] - logprobs
        kl = d.exp() - d - 1
        by_sequence = ((kl * MASK).sum(1) / MASK.sum(1)).mean()
        moved = 0.1 * (kl[MASK].mean() - by_sequence)
        (slope,) = torch.autograd.grad(moved, logprobs)
        return loss + moved.detach(), gradient + flat(slope)
    return loss, gradient


@pytest.mark.parametrize("name", TRL["losses"])
def test_loss_and_gradient(name: str) -> None:
    logprobs = flat(GIVEN["new"]).requires_grad_()
    output = OURS[name](tokens(logprobs, weighted=name == "dapo, weights"))
    output.loss.backward()
    loss, gradient = expected(name)
    torch.testing.assert_close(output.loss.detach(), loss, rtol=1e-9, atol=1e-12)
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, gradient, rtol=1e-9, atol=1e-12)


ESTIMATORS: dict[str, Any] = {
    "grpo": Grpo(GrpoOptions(eps=1e-4)), "dr_grpo": DrGrpo(NoOptions()), "rloo": Rloo(NoOptions()),
}  # fmt: skip


@pytest.mark.parametrize("case", TRL["rewards"])
@pytest.mark.parametrize("name", TRL["advantages"])
def test_advantages(name: str, case: str) -> None:
    rewards = TRL["rewards"][case]
    scored = [number for number, reward in enumerate(rewards) if reward is not None]
    batch = RewardBatch(
        rewards=np.array([rewards[number] for number in scored]),
        groups=np.array(scored) // TRL["group_size"],
        num_tokens=np.full(len(scored), 2),
    )
    found = np.zeros(len(rewards))
    found[scored] = ESTIMATORS[name].advantages(batch)
    np.testing.assert_allclose(found, TRL["advantages"][name][case], rtol=1e-5, atol=1e-6)
