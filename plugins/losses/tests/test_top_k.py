"""Score centering and the top-k reverse KL: exact values, gradients, what they promise, and the edges of float32."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_losses.cispo import CispoLoss
from molt_plugin_losses.correction_spec import ScoreCenteringOptions
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.score_centering import ScoreCentering, centering_term
from molt_plugin_losses.spec import CispoOptions, PpoOptions, TopkReverseKlOptions
from molt_plugin_losses.topk_reverse_kl import TopkReverseKl
from token_batches import token_batch
from torch import Tensor

from molt_core.api.correction import CorrectionBatch, CorrectionWeights

CASES = json.loads(Path(__file__).with_name("golden").joinpath("top_k.json").read_text(encoding="utf-8"))
INF, NAN = float("inf"), float("nan")
LOSSES = [PpoLoss(PpoOptions()), CispoLoss(CispoOptions())]
AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "prompt-mean-token-mean"]


def cases(kind: str) -> Any:
    chosen = [case for case in CASES if case["kind"] == kind]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case["name"])


def exact(texts: list[str]) -> Tensor:
    return torch.tensor([float(Fraction(text)) for text in texts], dtype=torch.float64)


def batch_of(p: Tensor, q: Tensor, own_p: Tensor, own_q: Tensor) -> CorrectionBatch:
    """Log-probs [N, k] of the likeliest and [N] of the drawn tokens, under policy and sampler."""
    return CorrectionBatch(
        logprobs=own_p, behaviour_logprobs=own_q, rollout_index=torch.arange(len(own_p)), top_logprobs=p,
        top_behaviour_logprobs=q,
    )  # fmt: skip


def corrected(p: Tensor, q: Tensor, k: int, token: int = 0, **options: Any) -> CorrectionWeights:
    """Of one place where `token` was drawn; p and q are [V] log-probs, the first k the likeliest."""
    batch = batch_of(p[None, :k], q[None, :k], p[token : token + 1], q[token : token + 1])
    return ScoreCentering(ScoreCenteringOptions(top_k=k, **options)).weights(batch)


def test_there_are_enough_exact_values() -> None:
    assert len(CASES) >= 40
    assert all(case["source"] for case in CASES)


@cases("centering")
def test_the_term_has_the_gradient_of_the_mean_score(case: dict[str, Any]) -> None:
    p, q, k = exact(case["p"]).log(), exact(case["q"]).log(), case["k"]
    options = {}
    if case["mode"] != "off":
        threshold = tuple(exact(case["threshold"]).tolist())
        options = {"level": "token", "mode": case["mode"], "threshold": threshold}
    made = corrected(p, q, k, **options)
    logits = p.clone().requires_grad_()
    top = logits.log_softmax(-1)[None, :k]
    one = torch.ones(1).double()
    centering_term(
        token_batch(top[:, 0], one, one, top_logprobs=top, centering=made.centering)
    ).sum().backward()
    torch.testing.assert_close(logits.grad, exact(case["gradient"]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=["ppo", "cispo"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"level": "token", "threshold": (0.4, 5.0)},
        {"level": "token", "threshold": (0.7, 1.5)},
        {"level": "token", "mode": "trunc", "threshold": (1.0,)},
        {"level": "token", "mode": "clip", "threshold": (0.8, 1.2)},
    ],
)
@pytest.mark.parametrize("advantage", [-2.0, 1.0])
def test_over_all_tokens_that_might_be_drawn_an_advantage_that_all_share_has_gradient_zero(
    loss: Any, options: dict[str, Any], advantage: float
) -> None:
    case = next(case for case in CASES if case["kind"] == "centering")
    p, q = exact(case["p"]).log(), exact(case["q"]).log()

    def mean_gradient(k: int, *, centred: bool = True) -> float:
        total = torch.zeros_like(p)
        for token in range(len(p)):
            made = corrected(p, q, k, token, **options)
            logits = p.clone().requires_grad_()
            logprobs = logits.log_softmax(-1)
            tokens = token_batch(
                logprobs[token : token + 1], q[token : token + 1], torch.full((1,), advantage).double(),
                old_logprobs=p[token : token + 1], weights=made.weights, top_logprobs=logprobs[None, :k],
                centering=made.centering if centred else None,
            )  # fmt: skip
            loss(tokens).loss.backward()
            assert logits.grad is not None
            total += q[token].exp() * logits.grad
        return total.abs().max().item()

    assert mean_gradient(3) < 1e-9
    assert mean_gradient(6) < 1e-9
    is_the_ratio_itself = options.get("threshold") == (0.4, 5.0)
    assert (mean_gradient(3, centred=False) < 1e-9) == is_the_ratio_itself


@cases("reverse_kl")
def test_reverse_kl_and_its_gradient(case: dict[str, Any]) -> None:
    p, t = exact(case["p"]).log(), exact(case["t"]).log()
    logits = p.clone().requires_grad_()
    top = logits.log_softmax(-1)[None]
    tokens = token_batch(top[:, 0], p[:1], torch.zeros(1), top_logprobs=top, top_reference_logprobs=t[None])
    output = TopkReverseKl(TopkReverseKlOptions(top_k=case["k"]))(tokens)
    output.loss.backward()
    torch.testing.assert_close(output.loss.item(), float(case["value"]), rtol=0, atol=1e-9)
    torch.testing.assert_close(logits.grad, exact(case["gradient"]), rtol=0, atol=1e-9)


def random_logits(seed: int, size: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(2, size, vocabulary, generator=generator, dtype=torch.float64)
    return logits[0], logits[1]


def assert_central_differences(value: Any, at: Tensor) -> None:
    variable = at.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(variable), variable)
    step = 1e-6
    for index in range(at.numel()):
        shift = torch.zeros(at.numel(), dtype=at.dtype)
        shift[index] = step
        difference = value(at + shift.view_as(at)) - value(at - shift.view_as(at))
        assert gradient.flatten()[index].item() == pytest.approx(difference.item() / (2 * step), abs=1e-7)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_gradients_equal_central_differences_with_constant_coefficients(aggregation: Any) -> None:
    at, other = random_logits(0, 5, 8)
    before, sampler = at.log_softmax(-1), other.log_softmax(-1)
    order = sampler.argsort(-1, descending=True)[:, :3]
    drawn = order[:, 1]

    def own(logprobs: Tensor) -> Tensor:
        return logprobs.gather(1, drawn[:, None])[:, 0]

    batch = batch_of(before.gather(1, order), sampler.gather(1, order), own(before), own(sampler))
    made = ScoreCentering(ScoreCenteringOptions(level="token", mode="clip", top_k=3)).weights(batch)

    def tokens(logits: Tensor) -> Any:
        logprobs = logits.log_softmax(-1)
        return token_batch(
            own(logprobs), own(sampler), torch.linspace(-2, 1, 5).double(), old_logprobs=own(before),
            weights=made.weights, centering=made.centering, top_logprobs=logprobs.gather(1, order),
            top_reference_logprobs=sampler.gather(1, order),
        )  # fmt: skip

    for loss in (
        PpoLoss(PpoOptions(aggregation=aggregation)),
        TopkReverseKl(TopkReverseKlOptions(aggregation=aggregation)),
    ):
        assert_central_differences(lambda logits, loss=loss: loss(tokens(logits)).loss, at)


@given(st.integers(0, 10**6), st.integers(2, 12))
def test_the_divergence_grows_with_k_up_to_that_of_the_whole_vocabulary(seed: int, vocabulary: int) -> None:
    p, t = (logits.log_softmax(-1) for logits in random_logits(seed, 3, vocabulary))
    tokens = token_batch(p[:, 0], p[:, 0], torch.zeros(3), top_logprobs=p, top_reference_logprobs=t)
    values = [
        TopkReverseKl(TopkReverseKlOptions(top_k=k))(tokens).loss.item() for k in range(1, vocabulary + 1)
    ]
    assert values == pytest.approx(sorted(values), abs=1e-4)
    assert values[0] >= -1e-12
    assert values[-1] == pytest.approx((p.exp() * (p - t)).sum(-1).mean().item(), abs=1e-4)


def test_a_correction_that_wants_fewer_tokens_than_are_recorded_takes_the_first() -> None:
    p, q = (logits.log_softmax(-1) for logits in random_logits(1, 4, 9))
    few, many = (
        ScoreCentering(ScoreCenteringOptions(top_k=2)).weights(batch_of(p[:, :k], q[:, :k], p[:, 0], q[:, 0]))
        for k in (2, 9)
    )
    assert few.centering is not None
    assert many.centering is not None
    assert few.centering.tolist() == many.centering.tolist()


@pytest.mark.parametrize("level", ["off", "token"])
@pytest.mark.parametrize("p", [-1000.0, -INF, NAN, 0.0])
@pytest.mark.parametrize("q", [-1000.0, -INF, 0.0])
def test_extreme_log_probs_give_finite_numbers_and_harm_no_token_beside(
    level: Any, p: float, q: float
) -> None:
    top_p, top_q = torch.tensor([[p, -3.0], [-1.0, -2.0]]), torch.tensor([[q, -3.0], [-1.5, -1.5]])
    correction = ScoreCentering(ScoreCenteringOptions(level=level))
    made = correction.weights(batch_of(top_p, top_q, top_p[:, 0], top_q[:, 0]))
    alone = correction.weights(batch_of(top_p[1:], top_q[1:], top_p[1:, 0], top_q[1:, 0]))
    assert made.centering is not None
    assert alone.centering is not None
    assert torch.isfinite(made.centering).all()
    assert made.centering[1].tolist() == alone.centering[0].tolist()
    for loss in (*LOSSES, TopkReverseKl(TopkReverseKlOptions())):
        top = top_p.clone().requires_grad_()
        tokens = token_batch(
            top[:, 0], top_q[:, 0], torch.ones(2), old_logprobs=top_p[:, 0], weights=made.weights,
            centering=made.centering, top_logprobs=top, top_reference_logprobs=top_q,
        )  # fmt: skip
        output = loss(tokens)
        output.loss.backward()
        assert torch.isfinite(output.loss)
        assert top.grad is not None
        assert torch.isfinite(top.grad).all()


def test_no_tokens_give_zero_with_a_gradient_path() -> None:
    none, top = torch.zeros(0), torch.zeros(0, 3, requires_grad=True)
    batch = batch_of(top.detach(), top.detach(), none, none)
    made = ScoreCentering(ScoreCenteringOptions(level="token")).weights(batch)
    for loss in (*LOSSES, TopkReverseKl(TopkReverseKlOptions())):
        tokens = token_batch(
            top.sum(-1), none, none, top_logprobs=top, top_reference_logprobs=none.view(0, 3),
            centering=made.centering,
        )  # fmt: skip
        output = loss(tokens)
        output.loss.backward()
        assert output.loss.item() == 0


def test_the_term_stays_where_the_tokens_own_weight_is_zero() -> None:
    p, q = torch.tensor([0.9, 0.05]).log(), torch.tensor([0.05, 0.9]).log()
    made = corrected(p, q, 2, level="token")
    assert made.weights.tolist() == [0.0]
    assert made.kept.tolist() == [False]
    assert made.centering is not None
    assert made.centering[0].abs().max() > 0.01


def test_likely_tokens_alone_change_no_policy_loss() -> None:
    logprobs, behaviour = torch.tensor([-1.0, -2.0]), torch.tensor([-1.1, -1.9])
    without, beside = (
        PpoLoss(PpoOptions())(token_batch(logprobs, behaviour, torch.ones(2), top_logprobs=top)).loss.item()
        for top in (None, torch.zeros(2, 4))
    )
    assert without == beside
