"""Score centering beside every loss and KL that it may stand by: gradients to the logits equal central differences."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from molt_plugin_losses.cispo import CispoLoss
from molt_plugin_losses.correction_spec import ScoreCenteringOptions
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.score_centering import ScoreCentering
from molt_plugin_losses.spec import CispoOptions, PpoOptions
from token_batches import token_batch
from torch import Tensor

from molt_core.api.correction import CorrectionBatch

SIZE, VOCABULARY, TOP = 6, 7, 3
NUM_DIRECTIONS = 5
ROLLOUTS = torch.arange(SIZE) // 2
LOSSES: dict[str, Any] = {
    "ppo": (PpoLoss, PpoOptions, {"clip_low": 0.1, "clip_high": 0.3}),
    "ppo-dual": (PpoLoss, PpoOptions, {"dual_clip": 1.5}),
    "cispo": (CispoLoss, CispoOptions, {"cap": 1.2}),
}
CORRECTIONS: dict[str, dict[str, Any]] = {
    "off": {},
    "mask": {"level": "token", "threshold": (0.7, 1.6)},
    "clip": {"level": "token", "mode": "clip", "threshold": (0.7, 1.6)},
    "trunc": {"level": "token", "mode": "trunc", "threshold": (1.1,)},
}
KL = [None, ("k1", "model"), ("k2", "model"), ("k3", "model"), ("k2", "sampler"), ("k3", "sampler")]


@pytest.mark.parametrize(("loss", "correction", "kl"), list(product(LOSSES, CORRECTIONS, KL)))
def test_gradient_equals_central_differences(loss: str, correction: str, kl: tuple[str, str] | None) -> None:
    kind, options, more = LOSSES[loss]
    if kl is not None:
        more = {**more, "kl_coef": 0.3, "kl_form": kl[0], "kl_reference": kl[1]}
    made = kind(options(aggregation="seq-mean-token-mean", **more))
    generator = torch.Generator().manual_seed(0)
    sampler, before, at, reference = torch.randn(
        1, SIZE, VOCABULARY, generator=generator, dtype=torch.float64
    ) + 0.3 * torch.randn(4, SIZE, VOCABULARY, generator=generator, dtype=torch.float64)
    likeliest = sampler.argsort(-1, descending=True)[:, :TOP]
    drawn = torch.randint(VOCABULARY, (SIZE,), generator=generator)
    advantages = torch.randn(3, generator=generator, dtype=torch.float64)[ROLLOUTS]

    def own(logits: Tensor) -> Tensor:
        return logits.log_softmax(-1).gather(1, drawn[:, None])[:, 0]

    def top(logits: Tensor) -> Tensor:
        return logits.log_softmax(-1).gather(1, likeliest)

    weighed = ScoreCentering(ScoreCenteringOptions(top_k=TOP, **CORRECTIONS[correction])).weights(
        CorrectionBatch(
            logprobs=own(before), behaviour_logprobs=own(sampler), rollout_index=ROLLOUTS,
            top_logprobs=top(before), top_behaviour_logprobs=top(sampler),
        )
    )  # fmt: skip

    def value(logits: Tensor) -> Tensor:
        # cispo's ratio is a constant to its gradient, so it is held where the differences are taken
        shift = (own(logits) - own(at)).detach() if loss == "cispo" else 0.0
        tokens = token_batch(
            own(logits), own(sampler), advantages, old_logprobs=own(before) + shift, weights=weighed.weights,
            centering=weighed.centering, top_logprobs=top(logits), reference_logprobs=own(reference),
            rollout_tokens=torch.full((SIZE,), 2.0).double(), rollout_index=ROLLOUTS,
        )  # fmt: skip
        result: Tensor = made(tokens).loss
        return result

    variable = at.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(variable), variable)
    with torch.no_grad():
        for _ in range(NUM_DIRECTIONS):
            step = 1e-6 * torch.randn(SIZE, VOCABULARY, generator=generator, dtype=torch.float64)
            difference = (value(at + step) - value(at - step)) / 2
            torch.testing.assert_close((gradient * step).sum() * 1e6, difference * 1e6, rtol=0, atol=1e-8)
