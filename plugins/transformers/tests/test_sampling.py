from __future__ import annotations

import pytest
import torch
from molt_plugin_transformers.sampling import sample

LOGITS = torch.tensor([[0.0, 1.0, -2.0, float("-inf")]])


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_come_in_the_proportions_of_the_softmax(temperature: float) -> None:
    num_draws = 4000
    uniforms = [(draw + 0.5) / num_draws for draw in range(num_draws)]
    tokens, *_ = sample(LOGITS.expand(num_draws, -1), [temperature] * num_draws, uniforms)
    shares = torch.bincount(torch.tensor(tokens), minlength=4) / num_draws
    assert torch.allclose(shares, (LOGITS[0] / temperature).softmax(-1), atol=1e-3)


def test_logprobs_are_of_the_scaled_distribution_and_unscaled_when_greedy() -> None:
    tokens, logprobs, *_ = sample(LOGITS.expand(2, -1), [0.5, 0.0], [0.0, 0.0])
    assert tokens == [0, 1]
    assert logprobs[0] == pytest.approx((LOGITS[0] / 0.5).log_softmax(-1)[0].item())
    assert logprobs[1] == pytest.approx(LOGITS[0].log_softmax(-1)[1].item())


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_impossible_tokens_at_either_end_are_never_drawn(uniform: float) -> None:
    logits = torch.tensor([[float("-inf"), 0.0, 0.0, float("-inf")]])
    tokens, logprobs, *_ = sample(logits, [1.0], [uniform])
    assert tokens[0] in (1, 2)
    assert logprobs[0] == pytest.approx(-0.6931, abs=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_are_an_error(bad: float) -> None:
    with pytest.raises(FloatingPointError):
        sample(torch.full((1, 4), bad), [1.0], [0.5])


def test_the_likeliest_come_with_logprobs_of_the_same_distribution() -> None:
    _, _, ids, logprobs = sample(LOGITS.expand(2, -1), [0.5, 0.0], [0.9, 0.9], num_top=3)
    assert ids == [[1, 0, 2], [1, 0, 2]]
    wanted = [(LOGITS[0] / scale).log_softmax(-1)[[1, 0, 2]].tolist() for scale in (0.5, 1.0)]
    assert logprobs == [pytest.approx(row) for row in wanted]
    assert sample(LOGITS, [1.0], [0.5])[2:] == ([[]], [[]])
