"""Metrics of steps and evaluations from the light part of rollouts. Pure functions.

Names and definitions are in docs/metrics.md. Everything is counted by rollout, never by
segment or turn; what failed or abstained is in no mean.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from molt_core.experience import Group, Outcome, RolloutSummary

SOLVED_FROM: Final = 1.0
"""Reward from which a reply counts as a pass."""


def step_metrics(groups: Sequence[Group], *, version: int) -> dict[str, float]:
    """Reward, lengths, staleness and the grader's numbers of one optimizer step.

    Args:
        groups: consumed by the step.
        version: the trainer's policy version when it consumed them.

    Returns:
        Metric name to value; NaN where nothing was trainable.
    """
    trained = [rollout for group in groups for rollout in group.trainable]
    staleness = [
        version - rollout.oldest_version for rollout in trained if rollout.oldest_version is not None
    ]
    rewards = _rewards(trained)
    return {
        "reward/mean": mean(rewards),
        "reward/std": _std(rewards),
        "rollout/length_mean": mean(rollout.num_sampled for rollout in trained),
        "rollout/segments_mean": mean(sum(map(bool, rollout.segment_sampled)) for rollout in trained),
        "rollout/truncated_rate": _truncated_rate(trained),
        **{f"rollout/left_out/{reason}": value for reason, value in _left_out_means(trained).items()},
        "staleness/mean": mean(staleness),
        "staleness/max": float(max(staleness, default=math.nan)),
        **{f"env/{key}": value for key, value in info_means(trained).items()},
    }


def eval_metrics(rollouts: Sequence[RolloutSummary], *, name: str) -> dict[str, float]:
    """pass@k, avg@k, reward and lengths of one evaluation of the set `name`.

    Args:
        rollouts: k replies to each prompt; replies to one prompt share their group_id.
    """
    # not `trains`: an agent may be graded for something that it did without a token
    graded = [rollout for rollout in rollouts if rollout.reward is not None]
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        by_prompt[rollout.group_id] += _rewards([rollout])
    num_samples = max((len(rewards) for rewards in by_prompt.values()), default=0)
    passes = {
        f"pass@{k}": mean(
            pass_at_k(len(rewards), sum(reward >= SOLVED_FROM for reward in rewards), k)
            for rewards in by_prompt.values()
            if len(rewards) >= k
        )
        for k in shown_k(num_samples)
    }
    values = {
        **passes,
        f"avg@{max(num_samples, 1)}": mean(mean(rewards) for rewards in by_prompt.values() if rewards),
        "reward_mean": mean(_rewards(graded)),
        "length_mean": mean(rollout.num_sampled for rollout in graded),
        "truncated_rate": _truncated_rate(graded),
        "num_prompts": float(len(by_prompt)),
        "num_dropped": float(len(rollouts) - len(graded)),
        "failed_rate": mean(rollout.outcome is Outcome.FAILED for rollout in rollouts),
        "abstained_rate": mean(rollout.outcome is Outcome.ABSTAINED for rollout in rollouts),
        **{f"env/{key}": value for key, value in info_means(graded).items()},
    }
    return {f"eval/{name}/{key}": value for key, value in values.items()}


def shown_k(num_samples: int) -> list[int]:
    """Powers of two up to `num_samples`, and that number itself; 1 where there is none."""
    return sorted({1 << power for power in range(num_samples.bit_length())} | {max(num_samples, 1)})


def pass_at_k(num_samples: int, num_solved: int, k: int) -> float:
    """Chance that at least one of k replies, drawn from the n sampled ones, is solved.

    The unbiased estimator 1 - C(n-c, k) / C(n, k) of Chen et al., arXiv 2107.03374, equation 1.
    """
    return 1.0 - math.comb(num_samples - num_solved, k) / math.comb(num_samples, k)


def info_means(rollouts: Iterable[RolloutSummary]) -> dict[str, float]:
    """Mean of each number that graders report, over those rollouts that report it."""
    reported: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for key, value in rollout.info.items():
            reported[key].append(value)
    return {key: mean(values) for key, values in sorted(reported.items())}


def _left_out_means(rollouts: Sequence[RolloutSummary]) -> dict[str, float]:
    reasons = sorted({reason for rollout in rollouts for reason in rollout.left_out_tokens})
    return {
        reason: mean(rollout.left_out_tokens.get(reason, 0) for rollout in rollouts) for reason in reasons
    }


def _rewards(rollouts: Iterable[RolloutSummary]) -> list[float]:
    return [rollout.reward for rollout in rollouts if rollout.reward is not None]


def _truncated_rate(rollouts: Sequence[RolloutSummary]) -> float:
    return mean(rollout.outcome is Outcome.TRUNCATED for rollout in rollouts)


def mean(values: Iterable[float]) -> float:
    """NaN where there is none."""
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else math.nan


def _std(values: Sequence[float]) -> float:
    """Of the population: divided by N."""
    centre = mean(values)
    # hypot, because squares of large but finite rewards overflow
    return math.hypot(*(value - centre for value in values)) / math.sqrt(len(values)) if values else math.nan
