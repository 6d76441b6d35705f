"""Log-probs and entropies from hidden states: against log_softmax, and their gradients against differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from molt_plugin_fsdp.token_scores import TokenScores
from torch import Tensor

NUM_TOKENS, WIDTH, VOCABULARY, CHOSEN = 7, 4, 11, 3


def inputs(dtype: torch.dtype = torch.float64, *, biased: bool = True) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    return {
        "states": normal(NUM_TOKENS, WIDTH),
        "weight": normal(VOCABULARY, WIDTH),
        "bias": normal(VOCABULARY) if biased else None,
        "wanted": torch.randint(0, VOCABULARY, (NUM_TOKENS, CHOSEN), generator=generator),
    }


def plainly(
    states: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logits = torch.nn.functional.linear(states, weight, bias)
    log_probs = (logits.float() if logits.dtype != torch.float64 else logits).div(temperature).log_softmax(-1)
    return log_probs.gather(-1, wanted), torch.special.entr(log_probs.exp()).sum(-1)


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("biased", [True, False])
def test_gradients_equal_differences(rows: int, temperature: float, biased: bool) -> None:
    given = inputs(biased=biased)
    wanted = given.pop("wanted")
    tensors = [tensor for tensor in given.values() if tensor is not None]

    def scores(*tensors: Tensor) -> Any:
        states, weight, bias = (*tensors, None)[:3]
        return TokenScores.apply(states, weight, bias, wanted, temperature, rows)

    assert torch.autograd.gradcheck(scores, tensors)
    assert torch.autograd.gradcheck(lambda *tensors: scores(*tensors)[0], tensors), "log-probs alone"
    assert torch.autograd.gradcheck(lambda *tensors: scores(*tensors)[1], tensors), "the entropy alone"


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 5e-2)]
)
def test_values_and_gradients_equal_those_of_log_softmax(dtype: torch.dtype, atol: float) -> None:
    results = []
    for rows in (None, 2):
        given = inputs(dtype)
        made = (
            plainly(**given, temperature=0.6)
            if rows is None
            else TokenScores.apply(*given.values(), 0.6, rows)
        )
        (made[0].sum() + (made[1] ** 2).sum()).backward()
        gradients = [given[name].grad for name in ("states", "weight", "bias")]
        results.append([*(value.detach() for value in made), *gradients])
    for found, wanted in zip(results[1], results[0], strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=atol, atol=atol)


def test_a_token_that_is_ruled_out_is_finite() -> None:
    given = inputs(torch.float32)
    ruled_out = torch.where(
        torch.arange(VOCABULARY) == 5, -torch.inf, given["bias"].detach()
    ).requires_grad_()
    wanted = torch.full((NUM_TOKENS, 1), 5)
    chosen, entropy = TokenScores.apply(given["states"], given["weight"], ruled_out, wanted, 1.0, 3)
    (chosen.sum() + entropy.sum()).backward()
    assert (chosen < -9e3).all()
    assert torch.isfinite(chosen).all()
    assert torch.isfinite(entropy).all()
    assert all(torch.isfinite(given[name].grad).all() for name in ("states", "weight"))


def test_what_is_not_a_number_is_not_hidden() -> None:
    given = inputs(torch.float32)
    with torch.no_grad():
        given["states"][2, 0] = torch.nan
    chosen, _ = TokenScores.apply(*given.values(), 1.0, 3)
    chosen.sum().backward()
    assert chosen[2].isnan().all()
    assert chosen[:2].isfinite().all()
    assert given["weight"].grad.isnan().any()


def test_no_tokens_give_gradients_of_exactly_zero() -> None:
    given = inputs(torch.float32)
    states = given["states"].detach()[:0].requires_grad_()
    chosen, entropy = TokenScores.apply(states, given["weight"], given["bias"], given["wanted"][:0], 1.0, 3)
    assert (chosen.shape, entropy.shape) == ((0, CHOSEN), (0,))
    (chosen.sum() + entropy.sum()).backward()
    assert (given["weight"].grad == 0).all()
    assert states.grad is not None
