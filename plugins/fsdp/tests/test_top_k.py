"""Likely tokens in the trainer: the step of a loss over them, their metric, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from every_algorithm import Choice, near_policy, settings
from molt_plugin_losses import correction_spec as corrections
from molt_plugin_losses import spec as losses
from tiny_trainer import (
    AS_GRADIENT,
    assert_equal_weights,
    plain_distributions,
    plain_model,
    published,
    save_model,
    started,
    train_batch,
    window_items,
    with_top,
)

from molt_core.errors import RunError
from molt_core.experience import TrainItem

NUM_TOP = 4
CENTERING = Choice(correction=(corrections.SCORE_CENTERING, {"top_k": NUM_TOP}))


def on_policy(folder: Path) -> list[TrainItem]:
    """Items whose sampler is the model itself."""
    model = plain_model(folder)
    made = []
    for item in window_items():
        with torch.no_grad():
            whole = plain_distributions(model, item.segment)
        own = whole.gather(
            1, torch.from_numpy(item.segment.token_ids[item.segment.sampled].astype(np.int64))[:, None]
        )
        logprobs = np.zeros_like(item.segment.logprobs)
        logprobs[item.segment.sampled] = own[:, 0].numpy()
        made.append(evolve(item, segment=with_top(evolve(item.segment, logprobs=logprobs), whole, NUM_TOP)))
    return made


def stepped(folder: Path, tmp_path: Path, choice: Choice, items: list[TrainItem], **more: Any) -> Any:
    """Weights after a step that moves them like a gradient, and its metrics."""
    with started(
        folder, **{**settings(choice, folder), **AS_GRADIENT, "top_logprobs": NUM_TOP, **more}
    ) as made:
        result = made.step(train_batch(items))
        return published(made, tmp_path), result.metrics


def test_a_distilling_step_is_that_of_the_plain_gradient(qwen3_folder: Path, tmp_path: Path) -> None:
    teacher = save_model(tmp_path / "teacher", "llama")
    items = on_policy(qwen3_folder)
    choice = Choice(loss=(losses.TOPK_REVERSE_KL, {"top_k": 3}))
    got, metrics = stepped(qwen3_folder, tmp_path, choice, items, reference_folder=str(teacher))

    model, other = plain_model(qwen3_folder), plain_model(teacher)
    parts, mass = [], []
    for item in items:
        ids = torch.from_numpy(item.segment.top_ids.astype(np.int64))
        log_p = plain_distributions(model, item.segment)
        log_t = plain_distributions(other, item.segment).detach()
        in_head = torch.zeros_like(log_p).scatter(1, ids[:, :3], 1.0)
        head = (in_head * log_p.exp() * (log_p - log_t)).sum(-1)
        rest_p, rest_t = (((1 - in_head) * each.exp()).sum(-1) for each in (log_p, log_t))
        parts.append(head + rest_p * (rest_p / rest_t).log())
        mass.append(log_p.gather(1, ids).exp().sum(-1))
    loss = torch.cat(parts).mean()
    loss.backward()
    assert metrics["policy/loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert metrics["policy/top_mass"] == pytest.approx(torch.cat(mass).mean().item(), rel=1e-4)
    wanted = {
        name: (param - param.grad / (param.grad.abs() + 1)).detach()
        for name, param in model.named_parameters()
    }
    assert_equal_weights(got, wanted)


def test_centering_leaves_a_step_on_the_policys_own_samples_as_it_is(
    qwen3_folder: Path, tmp_path: Path
) -> None:
    items = on_policy(qwen3_folder)
    plain, _ = stepped(qwen3_folder, tmp_path, Choice(), items)
    centred, _ = stepped(qwen3_folder, tmp_path, CENTERING, items)
    assert_equal_weights(centred, plain)


def test_centering_changes_a_step_on_another_samplers_tokens(qwen3_folder: Path, tmp_path: Path) -> None:
    items = near_policy(qwen3_folder)
    uncorrected = Choice(correction=(corrections.IMPORTANCE, {"mode": "clip", "threshold": (0.999, 1.0)}))
    plain, _ = stepped(qwen3_folder, tmp_path, uncorrected, items, top_logprobs=5)
    centred, _ = stepped(qwen3_folder, tmp_path, CENTERING, items, top_logprobs=5)
    name = "model.layers.0.mlp.up_proj.weight"
    assert (plain[name] - centred[name]).abs().max() > 1e-4


@pytest.mark.parametrize("wanted", [0, 3])
def test_items_with_another_number_of_likely_tokens_than_the_run_has_are_refused(
    qwen3_folder: Path, wanted: int
) -> None:
    with (
        started(qwen3_folder, top_logprobs=wanted) as made,
        pytest.raises(RunError, match=f"{NUM_TOP} likeliest tokens beside each sampled one, wanted {wanted}"),
    ):
        made.step(train_batch(on_policy(qwen3_folder)))


def test_items_without_likely_tokens_are_refused_where_a_plugin_wants_them(qwen3_folder: Path) -> None:
    chosen = {**settings(CENTERING, qwen3_folder), "top_logprobs": NUM_TOP}
    with started(qwen3_folder, **chosen) as made, pytest.raises(RunError, match="the 0 likeliest"):
        made.step(train_batch(window_items()))
