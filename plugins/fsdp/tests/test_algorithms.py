"""Every loss, correction and estimator in the trainer: what a step does depends on the window and on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from every_algorithm import (
    CHOICES,
    LIKE_A_GRADIENT,
    Choice,
    importance,
    in_segments,
    settings,
    state,
)
from molt_plugin_estimators import spec as estimators
from molt_plugin_fsdp.critic import value_errors
from molt_plugin_fsdp.model import named_tensors
from tiny_trainer import (
    assert_equal_weights,
    plain_logprobs,
    plain_model,
    started,
    train_batch,
    window_of,
)
from torch import Tensor

from molt_core.api.estimator import FloatVector, RewardBatch, SumOverRanks, TokenAdvantages, TokenRollouts
from molt_core.api.trainer import TrainerParts
from molt_core.errors import RunError
from molt_core.experience import Segment, TrainItem

each_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


def after_a_step(
    folder: Path, teacher: Path, choice: Choice, items: Sequence[TrainItem], **more: Any
) -> tuple[dict[str, Tensor], dict[str, float]]:
    with started(folder, **LIKE_A_GRADIENT, **settings(choice, teacher), **more) as made:
        result = made.step(train_batch(items, window_of(items)))
        assert result.applied
        return state(made), dict(result.metrics)


def poisoned(items: Sequence[TrainItem]) -> list[TrainItem]:
    """Log-probs of given tokens are NaN and infinite, which `checks` would refuse."""
    made = []
    for number, item in enumerate(items):
        poison = (np.nan, np.inf, -np.inf)[number % 3]
        segment = item.segment
        logprobs = np.where(segment.sampled, segment.logprobs, poison)
        made.append(evolve(item, segment=evolve(segment, logprobs=logprobs)))
    return made


def reversed_order(items: Sequence[TrainItem]) -> list[TrainItem]:
    last = max(item.rollout_index for item in items)
    groups = max(item.group_index for item in items)
    return [
        evolve(item, rollout_index=last - item.rollout_index, group_index=groups - item.group_index)
        for item in reversed(items)
    ]


CHANGES: dict[str, tuple[Callable[[Sequence[TrainItem]], Sequence[TrainItem]], dict[str, Any]]] = {
    "one item a row": (list, {"tokens_per_micro_batch": 1}),
    "small rows, prompts apart": (list, {"tokens_per_micro_batch": 40, "share_prompts": False}),
    "another order of groups and rollouts": (reversed_order, {}),
    "each token a segment": (in_segments, {"tokens_per_micro_batch": 60}),
    "poison where nothing was sampled": (poisoned, {}),
}


@each_choice
def test_a_step_depends_on_the_window_alone(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem], choice: Choice
) -> None:
    wanted, wanted_metrics = after_a_step(qwen3_folder, teacher, choice, items)
    for what, (change, options) in CHANGES.items():
        found, metrics = after_a_step(qwen3_folder, teacher, choice, change(items), **options)
        assert_equal_weights(found, wanted, atol=2e-5)
        for name in wanted_metrics.keys() - {"trainer/input_tokens", "trainer/micro_batches"}:
            assert metrics[name] == pytest.approx(wanted_metrics[name], rel=1e-3, abs=1e-4), (what, name)


@each_choice
def test_a_step_changes_the_policy(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem], choice: Choice
) -> None:
    with started(qwen3_folder, **settings(choice, teacher)) as made:
        before = state(made)
        made.step(train_batch(items))
        after = state(made)
    name = "weight.model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(before[name], after[name])


@each_choice
def test_going_on_from_a_checkpoint_is_bitwise(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem], choice: Choice, tmp_path: Path
) -> None:
    batch = train_batch(items)
    with started(qwen3_folder, **settings(choice, teacher)) as made:
        made.step(batch)
        made.save(tmp_path)
        straight = made.step(batch).metrics
        wanted = state(made)
    with started(qwen3_folder, **settings(choice, teacher)) as made:
        made.load(tmp_path)
        assert made.step(batch).metrics == straight
        assert_equal_weights(state(made), wanted, atol=0)


def test_a_checkpoint_of_another_estimator_is_refused(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem], tmp_path: Path
) -> None:
    with started(qwen3_folder, **settings(CHOICES["returns"], teacher)) as made:
        made.save(tmp_path)
    with (
        started(qwen3_folder, **settings(CHOICES["ppo, prompts"], teacher)) as made,
        pytest.raises(RunError, match="that of another estimator"),
    ):
        made.load(tmp_path)


def test_a_correction_that_leaves_out_everything_changes_nothing_and_says_so(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    choice = Choice(correction=importance(threshold=(1e6, 2e6)))
    with started(qwen3_folder, **settings(choice, teacher)) as made:
        before = {name: tensor.full_tensor().clone() for name, tensor in named_tensors(made._policy).items()}
        result = made.step(train_batch(items))
        after = {name: tensor.full_tensor() for name, tensor in named_tensors(made._policy).items()}
    assert result.applied
    assert (result.metrics["policy/loss"], result.metrics["policy/grad_norm"]) == (0.0, 0.0)
    assert result.metrics["correction/left_out_rate"] == 1.0
    assert_equal_weights(after, before, atol=0)


def test_the_kl_coefficient_is_steered_by_applied_steps_only(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    choice = CHOICES["ppo, steered kl to the sampler"]
    broken = [evolve(items[0], advantage=float("nan")), *items[1:]]
    with started(qwen3_folder, **settings(choice, teacher)) as made:
        first = made.step(train_batch(items)).metrics["policy/kl_coef"]
        assert "policy/kl_coef" not in made.step(train_batch(broken)).metrics
        assert made._parts.loss.state() == {"kl_coef": first}  # type: ignore[attr-defined]
    # the measured KL is far above its target: one step of the bound, 12 rollouts of a horizon of 50
    assert first == pytest.approx(0.2 * (1 + 0.2 * 12 / 50))


def test_only_the_critic_learns_while_it_warms_up(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    chosen = settings(CHOICES["gae"], teacher)
    with started(qwen3_folder, critic_lr=1e-3, critic_warmup_steps=2, **chosen) as made:
        states, metrics = [state(made)], []
        for _ in range(3):
            metrics.append(made.step(train_batch(items)).metrics)
            states.append(state(made))
    policy = "weight.model.layers.0.mlp.up_proj.weight"
    assert [torch.equal(a[policy], b[policy]) for a, b in pairwise(states)] == [
        True, True, False,
    ]  # fmt: skip
    assert [one.get("policy/frozen") for one in metrics] == [1.0, 1.0, None]
    assert metrics[2]["critic/loss"] < metrics[1]["critic/loss"] < metrics[0]["critic/loss"]


def test_further_passes_of_the_critic_are_bounded_and_count_as_one_step_of_its_warm_up(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    def found(**options: Any) -> list[Mapping[str, float]]:
        chosen = settings(CHOICES["gae"], teacher)
        with started(qwen3_folder, critic_lr=1e-2, critic_warmup_steps=2, **options, **chosen) as made:
            return [made.step(train_batch(items)).metrics for _ in range(3)]

    once, thrice, bounded = (
        found(),
        found(critic_epochs=3, critic_value_clip=100.0),
        found(critic_epochs=3, critic_value_clip=1e-4),
    )
    for metrics in (once, thrice, bounded):
        assert [one.get("policy/frozen") for one in metrics] == [1.0, 1.0, None]
    assert once[0]["critic/loss"] == thrice[0]["critic/loss"], "that of the values before the step"
    assert thrice[1]["critic/loss"] < once[1]["critic/loss"]
    assert once[1]["critic/clip_ratio"] == thrice[1]["critic/clip_ratio"] == 0.0
    assert bounded[0]["critic/clip_ratio"] > 0.5
    assert bounded[1]["critic/loss"] > thrice[1]["critic/loss"]


@pytest.mark.parametrize(
    ("value", "old", "target", "error", "clipped", "slope"),
    [
        (1.0, 0.0, 2.0, 0.5 * 1.8**2, True, 0.0),  # moved by more than 1/5: its old place counts
        (1.0, 0.0, 0.0, 0.5, False, 1.0),  # moved away from the return: what it is now counts
        (0.1, 0.0, 2.0, 0.5 * 1.9**2, False, -1.9),
        (-1.0, 0.0, -2.0, 0.5 * 1.8**2, True, 0.0),
        (0.5, 0.5, 0.75, 0.5 * 0.25**2, False, -0.25),
    ],
)
def test_the_larger_error_of_a_value_counts(
    value: float, old: float, target: float, error: float, clipped: bool, slope: float
) -> None:
    values = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    found, was_clipped = value_errors(values, torch.tensor([old]).double(), torch.tensor([target]), 0.2)
    found.sum().backward()
    assert values.grad is not None
    assert (found.item(), was_clipped.item()) == (pytest.approx(error), clipped)
    assert values.grad.item() == pytest.approx(slope)


def test_beside_a_correction_the_ratio_is_one_to_the_policy_before_the_step(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    choice = Choice(correction=importance(mode="trunc", threshold=(1.1,)))
    with started(qwen3_folder, **settings(choice, teacher)) as made:
        metrics = made.step(train_batch(items)).metrics
    model, total, count = plain_model(qwen3_folder), 0.0, 0
    for item in items:
        with torch.no_grad():
            new = plain_logprobs(model, item.segment).numpy()
        weights = np.minimum(np.exp(new - item.segment.logprobs[item.segment.sampled]), 1.1)
        total, count = total - item.advantage * float(weights.sum()), count + len(weights)
    assert metrics["policy/clip_ratio"] == 0.0, "the ratio is 1"
    assert metrics["policy/loss"] == pytest.approx(total / count, abs=1e-4)


def test_a_critic_that_is_not_finite_is_a_step_that_was_not_applied(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    broken = [evolve(items[0], token_rewards=np.full_like(items[0].token_rewards, np.nan)), *items[1:]]
    with started(qwen3_folder, critic_warmup_steps=1, **settings(CHOICES["gae"], teacher)) as made:
        assert not made.step(train_batch(broken)).applied


def test_the_first_values_are_0_and_their_loss_is_half_the_mean_square_of_the_returns(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    choice = Choice(estimator=(estimators.GAE, {}))
    with started(qwen3_folder, **settings(choice, teacher)) as made:
        found = made.step(train_batch(items)).metrics["critic/loss"]
    returns = np.concatenate([np.cumsum(item.token_rewards[::-1]) for item in items])
    assert found == pytest.approx(float((returns**2).mean()) / 2, rel=1e-4)


def test_gspo_clips_the_geometric_mean_of_a_rollout_s_ratios(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    with started(qwen3_folder, **settings(CHOICES["gspo"], teacher)) as made:
        found = made.step(train_batch(items)).metrics
    model = plain_model(qwen3_folder)
    total, num_clipped = 0.0, 0
    for item in items:
        with torch.no_grad():
            new = plain_logprobs(model, item.segment).numpy()
        ratio = float(np.exp((new - item.segment.logprobs[item.segment.sampled]).mean()))
        bounded = min(max(ratio, 0.95), 1.05)
        terms = ratio * item.advantage, bounded * item.advantage
        total -= len(new) * min(terms)
        num_clipped += len(new) * (terms[1] < terms[0])
    num_tokens = sum(item.rollout_tokens for item in items)
    assert found["policy/loss"] == pytest.approx(total / num_tokens, abs=1e-5)
    assert found["policy/clip_ratio"] == pytest.approx(num_clipped / num_tokens)


class Recorder:
    """An estimator for tokens that keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[TokenRollouts] = []

    def advantages(self, batch: RewardBatch) -> FloatVector:
        return batch.rewards

    def token_advantages(self, rollouts: TokenRollouts, sum_over_ranks: SumOverRanks) -> TokenAdvantages:
        self.seen.append(rollouts)
        return TokenAdvantages(advantages=rollouts.rewards)


def test_estimators_see_tokens_in_the_order_of_sampling_when_a_history_was_rewritten(
    qwen3_folder: Path,
) -> None:
    longer, shorter = (
        Segment.from_turn(np.arange(3, 3 + size), [9, 8], [-1.0, -2.0], [0, 0]) for size in (6, 2)
    )
    first, second = (
        TrainItem(
            segment=segment, advantage=0.0, rollout_index=0, group_index=0, rollout_tokens=4, group_tokens=4,
            segment_index=number, token_rewards=np.array(rewards, np.float32),
        )
        for number, segment, rewards in ((0, longer, [1, 2]), (1, shorter, [3, 4]))
    )  # fmt: skip
    recorder = Recorder()
    parts = TrainerParts(loss=CHOICES["returns"].parts().loss, estimator=recorder)
    with started(qwen3_folder, parts=parts) as made:
        made.step(train_batch([second, first]))
    (seen,) = recorder.seen
    assert seen.rewards.tolist() == [1, 2, 3, 4]
    assert seen.starts.tolist() == [0, 4]


def test_distillation_reports_the_distance_to_the_teacher(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    with started(qwen3_folder, **settings(CHOICES["distillation"], teacher)) as made:
        found = made.step(train_batch(items)).metrics["estimator/kl"]
    models = [plain_model(folder) for folder in (qwen3_folder, teacher)]
    with torch.no_grad():
        own, other = (torch.cat([plain_logprobs(model, item.segment) for item in items]) for model in models)
    assert found == pytest.approx(float((own - other).mean()), abs=1e-4)


def test_a_penalty_against_the_sampler_measures_how_far_the_policy_moved_since(
    qwen3_folder: Path, teacher: Path, items: list[TrainItem]
) -> None:
    choice = CHOICES["returns with a penalty against the sampler"]
    assert "reference-model" not in choice.facts
    with started(qwen3_folder, **settings(choice, teacher)) as made:
        found = made.step(train_batch(items)).metrics["estimator/kl"]
    model, moved = plain_model(qwen3_folder), []
    with torch.no_grad():
        for item in items:
            sampled = torch.from_numpy(item.segment.logprobs[item.segment.sampled])
            moved.append(plain_logprobs(model, item.segment) - sampled)
    d = torch.cat(moved)
    assert found == pytest.approx(float((d.exp() - 1 - d).mean()), abs=1e-4)
