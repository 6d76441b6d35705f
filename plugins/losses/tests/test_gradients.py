"""Every loss x correction x KL that is allowed: its gradient equals central differences, with constant weights."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from molt_plugin_losses.cispo import CispoLoss
from molt_plugin_losses.correction_spec import ImportanceOptions, refusals
from molt_plugin_losses.gspo import GspoLoss
from molt_plugin_losses.importance import ImportanceCorrection
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import CispoOptions, GspoOptions, PpoOptions
from token_batches import token_batch
from torch import Tensor

from molt_core.api.correction import CorrectionBatch

SIZE, LENGTH = 24, 6
ROLLOUTS = torch.arange(SIZE) // LENGTH
THRESHOLDS = {"ratio": (0.7, 1.6), "binary_kl": (0.05,), "tv": (0.15,)}
CORRECTIONS: dict[str, ImportanceOptions | None] = {"none": None} | {
    f"{level}-{gate}-{mode}": options
    for level, gate, mode in product(("token", "seq", "geo"), THRESHOLDS, ("mask", "clip", "trunc"))
    for options in [ImportanceOptions(level=level, gate=gate, mode=mode, threshold=THRESHOLDS[gate])]
    if not list(refusals(options))
}
KL = [None, ("k1", "model"), ("k2", "model"), ("k3", "model"), ("k2", "sampler"), ("k3", "sampler")]
LOSSES: dict[str, Any] = {
    "ppo": (PpoLoss, PpoOptions, {"clip_low": 0.1, "clip_high": 0.3}),
    "ppo-dual": (PpoLoss, PpoOptions, {"dual_clip": 1.5}),
    "gspo": (GspoLoss, GspoOptions, {"clip_low": 0.1, "clip_high": 0.2}),
    "cispo": (CispoLoss, CispoOptions, {"cap": 1.2}),
}
ALLOWED = [
    (loss, correction, kl, entropy)
    for loss, correction, kl, entropy in product(LOSSES, CORRECTIONS, KL, (0.0, 0.02))
    # a correction leaves gspo nothing to clip, which is refused before launch
    if loss != "gspo" or correction == "none"
]


def vectors() -> dict[str, Tensor]:
    """Float64, four rollouts of six tokens."""
    generator = torch.Generator().manual_seed(0)

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(SIZE, generator=generator, dtype=torch.float64)

    behaviour = -0.2 - 2 * torch.rand(SIZE, generator=generator, dtype=torch.float64)
    before = behaviour + normal(0.3)
    return {
        "behaviour": behaviour,
        "before": before,
        "logprobs": before + normal(0.2),
        "advantages": normal(1.0)[ROLLOUTS],
        "reference": behaviour + normal(0.5),
        "entropy": 1 + normal(0.1).abs(),
    }


def over_rollouts(values: Tensor) -> Tensor:
    return values.detach().view(-1, LENGTH).mean(1).repeat_interleave(LENGTH)


@pytest.mark.parametrize(("loss", "correction", "kl", "entropy"), ALLOWED)
def test_gradient_equals_central_differences(
    loss: str, correction: str, kl: tuple[str, str] | None, entropy: float
) -> None:
    kind, options, more = LOSSES[loss]
    if kl is not None:
        more = {**more, "kl_coef": 0.3, "kl_form": kl[0], "kl_reference": kl[1]}
    made = kind(options(entropy_coef=entropy, aggregation="seq-mean-token-mean", **more))
    of, ones = vectors(), torch.ones(SIZE, dtype=torch.float64)
    old, weights = of["behaviour"], ones
    if (chosen := CORRECTIONS[correction]) is not None:
        batch = CorrectionBatch(
            logprobs=of["before"], behaviour_logprobs=of["behaviour"], rollout_index=ROLLOUTS
        )
        old, weights = of["before"], ImportanceCorrection(chosen).weights(batch).weights

    def value(logprobs: Tensor, entropies: Tensor) -> Tensor:
        # cispo's ratio is a constant to its gradient, so it is held where the differences are taken
        shift = (logprobs - of["logprobs"]).detach() if loss == "cispo" else 0.0
        tokens = token_batch(
            logprobs, of["behaviour"], of["advantages"], old_logprobs=old + shift, weights=weights, entropy=entropies,
            # taken again at each point: so the differences are those of gspo's ratio of a whole rollout, which its
            # loss for tokens must have as its gradient
            rollout_log_ratio=over_rollouts(logprobs - of["behaviour"]), reference_logprobs=of["reference"],
            rollout_tokens=LENGTH * ones, rollout_index=ROLLOUTS,
        )  # fmt: skip
        result: Tensor = made(tokens).loss
        return result

    inputs = [of["logprobs"].requires_grad_(), of["entropy"].requires_grad_()]
    gradients = torch.autograd.grad(value(*inputs), inputs, allow_unused=True)
    with torch.no_grad():
        for number, gradient in enumerate(gradients):
            found = torch.zeros(SIZE, dtype=torch.float64) if gradient is None else gradient
            torch.testing.assert_close(found, differences(value, inputs, number), rtol=0, atol=1e-8)


def differences(value: Any, inputs: list[Tensor], number: int) -> Tensor:
    """[N] central differences of `value` by the vector `inputs[number]`."""
    step = 1e-6
    found = torch.empty(SIZE, dtype=torch.float64)
    for index in range(SIZE):
        moved = [one.clone() for one in inputs]
        moved[number][index] += step
        above = value(*moved)
        moved[number][index] -= 2 * step
        found[index] = (above - value(*moved)) / (2 * step)
    return found


def test_weights_are_constants_to_the_gradient() -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    batch = CorrectionBatch(
        logprobs=logprobs, behaviour_logprobs=torch.tensor([-1.5, -1.5]), rollout_index=torch.tensor([0, 0])
    )
    for options in CORRECTIONS.values():
        if options is not None:
            assert not ImportanceCorrection(options).weights(batch).weights.requires_grad


def test_the_gradient_under_a_correction_is_weight_times_that_without() -> None:
    of = vectors()
    weights = torch.rand(SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = []
    for used in (torch.ones_like(weights), weights):
        logprobs = of["logprobs"].detach().requires_grad_()
        loss = PpoLoss(PpoOptions())
        loss(token_batch(logprobs, of["behaviour"], of["advantages"], weights=used)).loss.backward()
        gradients.append(logprobs.grad)
    torch.testing.assert_close(gradients[1], weights * gradients[0])
