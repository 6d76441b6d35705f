"""One rank: what a step does, reports and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import PpoOptions
from safetensors.torch import load_file
from tiny_trainer import (
    AS_GRADIENT,
    assert_equal_weights,
    plain_logprobs,
    plain_model,
    published,
    started,
    train_batch,
    window_items,
    window_of,
)

from molt_core.api.trainer import StepResult, TrainerParts
from molt_core.errors import RunError

ITEMS = window_items()
METRICS = {
    "policy/loss", "policy/clip_ratio", "policy/kl", "policy/entropy", "policy/grad_norm", "policy/lr",
    "mismatch/kl", "mismatch/abs_diff", "trainer/sampled_tokens", "trainer/input_tokens", "trainer/micro_batches",
}  # fmt: skip
OF_PACKING = {"trainer/input_tokens", "trainer/micro_batches"}


def one_step(folder: Path, tmp_path: Path, **settings: Any) -> tuple[StepResult, dict[str, torch.Tensor]]:
    with started(folder, **AS_GRADIENT, **settings) as made:
        return made.step(train_batch(ITEMS)), published(made, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"tokens_per_micro_batch": 1},
        {"tokens_per_micro_batch": 40},
        {"tokens_per_micro_batch": 40, "share_prompts": False},
        {"share_prompts": False, "logit_rows": 3},
        {"gradient_checkpointing": True},
    ],
    ids=str,
)
def test_gradient_and_metrics_do_not_depend_on_how_rows_are_made(
    model_folder: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    wanted, wanted_weights = one_step(model_folder, tmp_path / "wanted")
    got, got_weights = one_step(model_folder, tmp_path / "got", **settings)
    assert_equal_weights(got_weights, wanted_weights)
    assert set(got.metrics) == METRICS
    for name in METRICS - OF_PACKING:
        assert got.metrics[name] == pytest.approx(wanted.metrics[name], abs=1e-4), name


def test_sharing_prompts_computes_fewer_tokens(qwen3_folder: Path, tmp_path: Path) -> None:
    shared, _ = one_step(qwen3_folder, tmp_path)
    plain, _ = one_step(qwen3_folder, tmp_path, share_prompts=False)
    assert shared.metrics["trainer/sampled_tokens"] == plain.metrics["trainer/sampled_tokens"]
    assert shared.metrics["trainer/input_tokens"] < plain.metrics["trainer/input_tokens"]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_metrics_are_plain_means_over_sampled_tokens(qwen3_folder: Path, temperature: float) -> None:
    with started(qwen3_folder, temperature=temperature) as made:
        metrics = made.step(train_batch(ITEMS)).metrics
    model = plain_model(qwen3_folder)
    with torch.no_grad():
        new = torch.cat([plain_logprobs(model, one.segment, temperature) for one in ITEMS])
    old = torch.cat([torch.from_numpy(one.segment.logprobs[one.segment.sampled]) for one in ITEMS])
    advantages = torch.cat([torch.full((one.segment.num_sampled,), one.advantage) for one in ITEMS])
    difference, ratio = new - old, (new - old).exp()
    surrogates = ratio * advantages, ratio.clamp(0.8, 1.2) * advantages
    expected = {
        "policy/loss": -torch.minimum(*surrogates).mean(),
        "policy/clip_ratio": (surrogates[1] < surrogates[0]).float().mean(),
        "policy/kl": -difference.mean(),
        "mismatch/kl": (ratio - 1 - difference).mean(),
        "mismatch/abs_diff": difference.abs().mean(),
        "trainer/sampled_tokens": torch.tensor(float(len(new))),
    }
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(float(value), abs=1e-4), name


def test_nan_where_nothing_was_sampled_has_no_effect(qwen3_folder: Path, tmp_path: Path) -> None:
    wanted, wanted_weights = one_step(qwen3_folder, tmp_path / "wanted")
    poisoned = [
        evolve(
            one,
            segment=evolve(one.segment, logprobs=np.where(one.segment.sampled, one.segment.logprobs, np.nan)),
        )
        for one in ITEMS
    ]
    with started(qwen3_folder, **AS_GRADIENT) as made:
        assert made.step(train_batch(poisoned)).metrics == wanted.metrics
        assert_equal_weights(published(made, tmp_path), wanted_weights, atol=0)


def test_a_step_that_is_not_finite_changes_nothing(qwen3_folder: Path, tmp_path: Path) -> None:
    broken = [evolve(ITEMS[0], advantage=float("nan")), *ITEMS[1:]]
    with started(qwen3_folder) as made:
        made.step(train_batch(ITEMS))
        before = published(made, tmp_path / "before")
        made.save(tmp_path / "state before")
        result = made.step(train_batch(broken))
        made.save(tmp_path / "state after")
        after = published(made, tmp_path / "after")
        following = made.step(train_batch(ITEMS))
    assert not result.applied
    assert set(result.metrics) == METRICS
    assert_equal_weights(after, before, atol=0)
    states = [
        load_file(next((tmp_path / name).glob("*.safetensors"))) for name in ("state before", "state after")
    ]
    assert_equal_weights(states[1], states[0], atol=0)
    assert following.applied


class FailsAfterwards(PpoLoss):
    """A loss that fails when the weights have moved, or before."""

    fails_at = "end"

    def __call__(self, tokens):
        if self.fails_at == "start":
            raise ValueError("too early")
        return super().__call__(tokens)

    def after_step(self, means, num_rollouts):
        if self.fails_at == "end":
            raise ValueError("too late")
        return {}


def test_a_step_that_fails_when_the_weights_have_moved_is_not_saved_and_one_before_is(
    qwen3_folder: Path, tmp_path: Path
) -> None:
    loss = FailsAfterwards(PpoOptions())
    with started(qwen3_folder, parts=TrainerParts(loss=loss)) as made:
        before = published(made, tmp_path)
        loss.fails_at = "start"
        with pytest.raises(ValueError, match="too early"):
            made.step(train_batch(ITEMS))
        made.save(tmp_path / "sound")
        assert_equal_weights(published(made, tmp_path), before, atol=0)
        loss.fails_at = "end"
        with pytest.raises(ValueError, match="too late"):
            made.step(train_batch(ITEMS))
        with pytest.raises(RunError, match="between two steps"):
            made.save(tmp_path / "unsound")


def test_a_window_that_counts_other_tokens_is_refused(qwen3_folder: Path) -> None:
    wrong = evolve(window_of(ITEMS), num_tokens=1)
    with started(qwen3_folder) as made, pytest.raises(RunError, match="window says 1 sampled tokens"):
        made.step(train_batch(ITEMS, wrong))


def test_learning_rate_rises_over_the_warmup_steps(qwen3_folder: Path) -> None:
    with started(qwen3_folder, lr=0.4, warmup_steps=4) as made:
        rates = [made.step(train_batch(ITEMS)).metrics["policy/lr"] for _ in range(5)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


def test_equal_runs_are_bitwise_equal(qwen3_folder: Path, tmp_path: Path) -> None:
    first, first_weights = one_step(qwen3_folder, tmp_path / "first")
    second, second_weights = one_step(qwen3_folder, tmp_path / "second")
    assert first == second
    assert_equal_weights(second_weights, first_weights, atol=0)


def test_steps_far_below_the_resolution_of_bfloat16_add_up(qwen3_folder: Path, tmp_path: Path) -> None:
    with started(qwen3_folder, dtype="bfloat16", lr=1e-5) as made:
        made.save(tmp_path / "before")
        for _ in range(3):
            assert made.step(train_batch(ITEMS)).applied
        made.save(tmp_path / "after")
    before, after = (load_file(next((tmp_path / name).glob("*.safetensors"))) for name in ("before", "after"))
    name = "weight.model.layers.0.mlp.up_proj.weight"
    assert before[name].dtype == torch.float32
    moved = (after[name] - before[name]).abs()
    assert (moved > 0).float().mean() > 0.9
    assert moved.max() < 1e-4
