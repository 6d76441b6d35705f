"""What must hold for any window: micro-batches, order, segments, scale, and who counts in a denominator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve, fields_dict
from hypothesis import given, settings
from hypothesis import strategies as st
from molt_plugin_losses.aggregation import AGGREGATIONS
from molt_plugin_losses.cispo import CispoLoss
from molt_plugin_losses.correction_spec import ImportanceOptions
from molt_plugin_losses.gspo import GspoLoss
from molt_plugin_losses.importance import ImportanceCorrection
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import CispoOptions, GspoOptions, PpoOptions
from token_batches import token_batch
from torch import Tensor

from molt_core.api.correction import CorrectionBatch
from molt_core.api.loss import TokenBatch
from molt_core.experience.batch import Window

MAKERS: dict[str, Callable[..., Any]] = {
    "ppo": lambda **more: PpoLoss(PpoOptions(dual_clip=2.0, **more)),
    "gspo": lambda **more: GspoLoss(GspoOptions(**more)),
    "cispo": lambda **more: CispoLoss(CispoOptions(**more)),
}
each_loss = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
each_aggregation = pytest.mark.parametrize("aggregation", AGGREGATIONS)
CORRECTIONS = [
    ImportanceOptions(level="token", threshold=(0.8, 1.2)),
    ImportanceOptions(level="seq", threshold=(0.8, 1.2)),
    ImportanceOptions(level="geo", threshold=(0.9, 1.1)),
    ImportanceOptions(level="seq", gate="tv", threshold=(0.05,)),
    ImportanceOptions(mode="trunc", threshold=(1.1,)),
]
quick = settings(max_examples=10, deadline=None)


@st.composite
def windows(draw: st.DrawFn) -> TokenBatch:
    """All tokens of a window in float64: 1 to 4 prompts of 1 to 3 rollouts of 1 to 6 tokens."""
    sizes = draw(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4))
    lengths = [length for group in sizes for length in group]
    groups = [number for number, group in enumerate(sizes) for _ in group]
    of_token = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    group = torch.tensor(groups)[of_token]
    count = len(of_token)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def normal(scale: float, size: int = count) -> Tensor:
        return scale * torch.randn(size, generator=generator, dtype=torch.float64)

    behaviour = -torch.rand(count, generator=generator, dtype=torch.float64) - 0.1
    logprobs = behaviour + normal(0.3)
    ratio = torch.zeros(len(lengths), dtype=torch.float64).index_add_(0, of_token, logprobs - behaviour)
    rollout_tokens = torch.tensor(lengths, dtype=torch.float64)[of_token]
    group_tokens = torch.tensor(list(map(sum, sizes)), dtype=torch.float64)[group]
    return token_batch(
        logprobs, behaviour, normal(1.0, len(lengths))[of_token], rollout_index=of_token, group_index=group,
        rollout_log_ratio=ratio[of_token] / rollout_tokens, reference_logprobs=behaviour + normal(0.3),
        weights=torch.rand(count, generator=generator, dtype=torch.float64).round(decimals=0) * 1.5,
        entropy=normal(1.0).abs(), rollout_tokens=rollout_tokens,
        group_tokens=group_tokens,
        window=Window(num_tokens=count, num_rollouts=len(lengths), num_groups=len(sizes)),
    )  # fmt: skip


def part(tokens: TokenBatch, which: Tensor) -> TokenBatch:
    """Some of the tokens; the window stays."""
    chosen = {
        name: value[which] for name in fields_dict(TokenBatch) if (value := getattr(tokens, name)) is not None
        if isinstance(value, Tensor)
    }  # fmt: skip
    return evolve(tokens, **chosen)


def loss_and_gradient(loss: Any, tokens: TokenBatch, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Summed over micro-batches; the gradient by token of the window."""
    logprobs = tokens.logprobs.detach().requires_grad_()
    whole = evolve(tokens, logprobs=logprobs)
    total = sum(loss(part(whole, which)).loss for which in parts)
    assert isinstance(total, Tensor)
    (gradient,) = torch.autograd.grad(total, logprobs)
    return total.detach(), gradient


@each_loss
@each_aggregation
@given(tokens=windows(), data=st.data())
@quick
def test_micro_batches_add_up_whatever_rollouts_and_segments_they_cut(
    make: Any, aggregation: str, tokens: TokenBatch, data: Any
) -> None:
    loss = make(aggregation=aggregation, kl_coef=0.1, entropy_coef=0.01)
    size = len(tokens.logprobs)
    labels = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)))
    parts = [torch.nonzero(labels == label)[:, 0] for label in range(4)]
    whole = loss_and_gradient(loss, tokens, [torch.arange(size)])
    split = loss_and_gradient(loss, tokens, parts)
    torch.testing.assert_close(split, whole)


@each_loss
@each_aggregation
@given(tokens=windows(), data=st.data())
@quick
def test_order_of_tokens_does_not_matter(make: Any, aggregation: str, tokens: TokenBatch, data: Any) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(tokens.logprobs)))))
    loss = make(aggregation=aggregation, kl_coef=0.1)
    torch.testing.assert_close(loss(part(tokens, order)).loss, loss(tokens).loss)


@each_loss
@each_aggregation
@pytest.mark.parametrize("reference", ["model", "sampler"])
@given(tokens=windows())
@quick
def test_kl_and_entropy_are_means_over_all_tokens_whatever_their_weights_and_aggregation(
    make: Any, aggregation: str, reference: str, tokens: TokenBatch
) -> None:
    def added(batch: TokenBatch, how: str) -> Tensor:
        more = {"kl_coef": 0.1, "kl_form": "k2", "kl_reference": reference, "entropy_coef": 0.01}
        difference: Tensor = make(aggregation=how, **more)(batch).loss - make(aggregation=how)(batch).loss
        return difference

    plain = evolve(tokens, weights=torch.ones_like(tokens.weights))
    torch.testing.assert_close(added(tokens, aggregation), added(plain, "token-mean"))


@each_loss
@given(tokens=windows(), scale=st.floats(0.01, 100))
@quick
def test_loss_is_linear_in_the_size_of_advantages(make: Any, tokens: TokenBatch, scale: float) -> None:
    loss = make()
    scaled = evolve(tokens, advantages=scale * tokens.advantages)
    torch.testing.assert_close(loss(scaled).loss, scale * loss(tokens).loss)


@each_loss
@each_aggregation
@given(tokens=windows())
@quick
def test_on_policy_the_gradient_is_minus_the_advantage(
    make: Any, aggregation: str, tokens: TokenBatch
) -> None:
    current = tokens.logprobs
    tokens = evolve(tokens, old_logprobs=current, rollout_log_ratio=torch.zeros_like(current))
    loss = make(aggregation=aggregation)
    _, gradient = loss_and_gradient(loss, tokens, [torch.arange(len(current))])
    share = AGGREGATIONS[aggregation](tokens)
    torch.testing.assert_close(gradient, -share * tokens.weights * tokens.advantages)


@each_aggregation
@given(tokens=windows())
@quick
def test_shares_of_a_window_sum_to_one_or_to_the_mean_length(aggregation: str, tokens: TokenBatch) -> None:
    total = AGGREGATIONS[aggregation](tokens).sum().item()
    window = tokens.window
    of_sums = window.num_tokens / window.num_rollouts
    assert total == pytest.approx(of_sums if aggregation == "seq-mean-token-sum" else 1.0)


@each_loss
@each_aggregation
@given(tokens=windows(), poison=st.sampled_from([float("nan"), float("inf"), -float("inf")]))
@quick
def test_a_token_that_is_left_out_changes_no_other_and_stays_in_the_denominator(
    make: Any, aggregation: str, tokens: TokenBatch, poison: float
) -> None:
    every = [torch.arange(len(tokens.logprobs))]
    loss = make(aggregation=aggregation)
    ones = evolve(tokens, weights=torch.ones_like(tokens.weights))
    first = torch.arange(len(tokens.weights)) == 0
    poisoned = evolve(
        ones,
        weights=ones.weights.where(~first, 0.0),
        logprobs=ones.logprobs.where(~first, poison),
        rollout_log_ratio=ones.rollout_log_ratio.where(~first, poison),
    )
    _, with_it = loss_and_gradient(loss, ones, every)
    wanted, _ = loss_and_gradient(loss, evolve(ones, weights=poisoned.weights), every)
    found, without = loss_and_gradient(loss, poisoned, every)
    torch.testing.assert_close(found, wanted)
    assert without[0] == 0.0
    torch.testing.assert_close(without[1:], with_it[1:])


@pytest.mark.parametrize("options", CORRECTIONS, ids=str)
@given(tokens=windows(), data=st.data())
@quick
def test_corrections_do_not_depend_on_order_numbers_or_company(
    options: ImportanceOptions, tokens: TokenBatch, data: Any
) -> None:
    correction = ImportanceCorrection(options)
    numbers = int(tokens.rollout_index.max()) + 1
    renumbered = torch.tensor(data.draw(st.permutations(range(numbers))))[tokens.rollout_index]
    order = torch.tensor(data.draw(st.permutations(range(len(renumbered)))))

    def weights(rollouts: Tensor, which: Tensor) -> Tensor:
        batch = CorrectionBatch(
            logprobs=tokens.logprobs[which],
            behaviour_logprobs=tokens.behaviour_logprobs[which],
            rollout_index=rollouts[which],
        )
        return correction.weights(batch).weights

    every = torch.arange(len(order))
    whole = weights(tokens.rollout_index, every)
    torch.testing.assert_close(weights(renumbered, order), whole[order], rtol=1e-12, atol=0)
    for rollout in range(numbers):
        own = torch.nonzero(tokens.rollout_index == rollout)[:, 0]
        torch.testing.assert_close(weights(tokens.rollout_index, own), whole[own], rtol=1e-12, atol=0)
