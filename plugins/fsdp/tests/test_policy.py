"""Log-probs, entropies and gradients against plain forward passes of transformers, in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from attrs import evolve
from molt_plugin_fsdp.packing import pack
from molt_plugin_fsdp.policy import Policy
from molt_plugin_fsdp.row import Row, empty_row
from tiny_trainer import VOCABULARY, plain_distributions, plain_logprobs, plain_model, window_items, with_top
from torch import Tensor

from molt_core.experience import TrainItem

ITEMS = window_items()


def policy(folder: Path, temperature: float = 1.0, logit_rows: int = 256) -> Policy:
    return Policy(plain_model(folder), temperature=temperature, logit_rows=logit_rows)


def rows_of(items: list[TrainItem], *, share: bool, max_tokens: int = 2048) -> list[Row]:
    return pack(items, max_tokens=max_tokens, share_prompts=share)


def by_rollout(rows: list[Row], vectors: list[Tensor]) -> Tensor:
    """[N] values of all rows, in the order of rollouts and of tokens within them."""
    rollouts = np.concatenate([row.rollout_index for row in rows])
    return torch.cat(vectors)[torch.from_numpy(np.argsort(rollouts, kind="stable"))]


def plain_gradients(folder: Path, weights: Tensor, temperature: float) -> tuple[Tensor, dict[str, Tensor]]:
    model = plain_model(folder)
    logprobs = torch.cat([plain_logprobs(model, one.segment, temperature) for one in ITEMS])
    (logprobs * weights).sum().backward()
    return logprobs.detach(), {name: param.grad for name, param in model.named_parameters()}


@pytest.mark.parametrize("share", [False, True], ids=["packed", "shared prompts"])
@pytest.mark.parametrize("max_tokens", [1, 40, 2048])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_gradients_equal_separate_forward_passes(
    model_folder: Path, share: bool, max_tokens: int, temperature: float
) -> None:
    num_tokens = sum(one.segment.num_sampled for one in ITEMS)
    weights = torch.linspace(-1, 1, num_tokens)
    wanted, gradients = plain_gradients(model_folder, weights, temperature)

    made = policy(model_folder, temperature)
    rows = rows_of(ITEMS, share=share, max_tokens=max_tokens)
    assert any(row.branched for row in rows) == (share and max_tokens > 1)
    logprobs = by_rollout(rows, [made(row)[0] for row in rows])
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, wanted, rtol=0, atol=1e-5)
    (logprobs * weights).sum().backward()
    for name, param in made.model.named_parameters():
        torch.testing.assert_close(param.grad, gradients[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("logit_rows", [1, 5, 256])
def test_the_number_of_logit_rows_changes_nothing(qwen3_folder: Path, logit_rows: int) -> None:
    (row,) = rows_of(ITEMS, share=True)
    logprobs, entropy, _ = policy(qwen3_folder, logit_rows=logit_rows)(row)
    wanted_logprobs, wanted_entropy, _ = policy(qwen3_folder, logit_rows=len(row.targets))(row)
    torch.testing.assert_close(logprobs, wanted_logprobs, rtol=0, atol=1e-6)
    torch.testing.assert_close(entropy, wanted_entropy, rtol=0, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_entropy_is_that_of_the_distribution_that_was_sampled_from(
    qwen3_folder: Path, temperature: float
) -> None:
    one = ITEMS[0]
    (row,) = rows_of([one], share=False)
    _, entropy, _ = policy(qwen3_folder, temperature)(row)
    ids = torch.from_numpy(one.segment.token_ids.astype(np.int64))
    logits = plain_model(qwen3_folder)(input_ids=ids[None]).logits[0] / temperature
    wanted = torch.distributions.Categorical(logits=logits).entropy()[:-1]
    torch.testing.assert_close(entropy, wanted[torch.from_numpy(one.segment.sampled[1:])], rtol=0, atol=1e-5)
    assert not entropy.requires_grad


@pytest.mark.parametrize("share", [False, True], ids=["packed", "shared prompts"])
@pytest.mark.parametrize("logit_rows", [4, 256])
def test_log_probs_and_gradients_of_likely_tokens_equal_separate_forward_passes(
    model_folder: Path, share: bool, logit_rows: int
) -> None:
    items = [
        evolve(item, segment=with_top(item.segment, torch.randn(item.segment.num_sampled, VOCABULARY), 7))
        for item in ITEMS
    ]
    model = plain_model(model_folder)
    wanted = torch.cat(
        [
            plain_distributions(model, item.segment, 0.7).gather(
                1, torch.from_numpy(item.segment.top_ids.astype(np.int64))
            )
            for item in items
        ]
    )
    weights = torch.linspace(-1, 1, wanted.numel()).view_as(wanted)
    (wanted * weights).sum().backward()
    made = policy(model_folder, 0.7, logit_rows)
    rows = rows_of(items, share=share, max_tokens=40)
    top = by_rollout(rows, [made(row)[2] for row in rows])
    torch.testing.assert_close(top, wanted, rtol=0, atol=1e-5)
    (top * weights).sum().backward()
    for (name, param), plain in zip(made.model.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(
            param.grad, plain.grad, rtol=1e-4, atol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.parametrize("num_top", [0, 5])
def test_no_logits_are_kept_for_the_backward_pass(qwen3_folder: Path, num_top: int) -> None:
    items = [
        evolve(
            item, segment=with_top(item.segment, torch.randn(item.segment.num_sampled, VOCABULARY), num_top)
        )
        for item in ITEMS
    ]
    (row,) = rows_of(items, share=True)
    assert row.top_ids.shape == (len(row.targets), num_top)
    kept: list[tuple[int, ...]] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        policy(qwen3_folder, logit_rows=8)(row)
    assert kept
    assert not [shape for shape in kept if shape[-1:] == (VOCABULARY,)]


def test_an_empty_row_gives_every_weight_a_gradient_of_exactly_zero(model_folder: Path) -> None:
    made = policy(model_folder)
    logprobs, entropy, top = made(empty_row(3))
    assert logprobs.shape == entropy.shape == (0,)
    assert top.shape == (0, 3)
    (logprobs.sum() + top.sum()).backward()
    assert all((param.grad == 0).all() for param in made.model.parameters())
