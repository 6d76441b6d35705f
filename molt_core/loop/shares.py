"""From a step's groups to the shares of the trainer ranks. Pure; reads light parts only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from molt_core.api.estimator import Estimator, FloatVector, RewardBatch
from molt_core.api.shaping import Graded, Shaper
from molt_core.errors import RunError
from molt_core.experience import Group, Outcome, RolloutSummary, Window
from molt_core.loop.ports import ItemReference, RankShare


def reward_batch(groups: Sequence[Group], shaper: Shaper | None = None) -> RewardBatch:
    """Rewards of the trainable rollouts, shaped, in order of groups.

    Raises:
        RunError: the shaper returned another number of rewards, or some that are not finite.
    """
    pairs = [(number, rollout) for number, group in enumerate(groups) for rollout in group.trainable]
    rewards = np.array([rollout.reward for _, rollout in pairs], dtype=np.float64)
    if shaper is not None:
        shaped = np.asarray(shaper.shape([_graded(rollout) for _, rollout in pairs]), dtype=np.float64)
        if shaped.shape != rewards.shape or not np.isfinite(shaped).all():
            raise RunError(
                f"the shaper returned {shaped.tolist()} for {len(rewards)} rollouts, wanted as many finite numbers",
                reason="shaper",
            )
        rewards = shaped
    return RewardBatch(
        rewards=rewards,
        groups=np.array([number for number, _ in pairs], dtype=np.int64),
        num_tokens=np.array([rollout.num_sampled for _, rollout in pairs], dtype=np.int64),
    )


def _graded(rollout: RolloutSummary) -> Graded:
    assert rollout.reward is not None
    return Graded(
        reward=rollout.reward,
        truncated=rollout.outcome is Outcome.TRUNCATED,
        reply_tokens=max(rollout.segment_sampled),
        context_tokens=max(rollout.segment_tokens),
    )


def advantages_of(estimator: Estimator, batch: RewardBatch) -> FloatVector:
    """Run the estimator and check its contract.

    Raises:
        RunError: wrong shape, or a value that is not finite.
    """
    advantages = np.asarray(estimator.advantages(batch), dtype=np.float64)
    if advantages.shape != batch.rewards.shape:
        raise RunError(
            f"the estimator returned advantages of shape {advantages.shape}, wanted {batch.rewards.shape}",
            reason="estimator",
        )
    if not np.isfinite(advantages).all():
        raise RunError(
            f"the estimator returned {(~np.isfinite(advantages)).sum()} advantages that are not finite "
            f"for rewards between {batch.rewards.min():g} and {batch.rewards.max():g}",
            reason="estimator",
        )
    return advantages


def shares(groups: Sequence[Group], advantages: FloatVector, num_ranks: int) -> tuple[RankShare, ...]:
    """All segments, spread over the ranks."""
    items: list[ItemReference] = []
    rollout_index = 0
    for group_index, group in enumerate(groups):
        group_tokens = sum(rollout.num_sampled for rollout in group.trainable)
        for rollout in group.trainable:
            items += [
                ItemReference(
                    payload=rollout.payload,
                    segment=number,
                    num_tokens=num_tokens,
                    advantage=float(advantages[rollout_index]),
                    rollout_id=rollout.rollout_id,
                    rollout_index=rollout_index,
                    group_index=group_index,
                    rollout_tokens=rollout.num_sampled,
                    group_tokens=group_tokens,
                )
                for number, num_tokens in enumerate(rollout.segment_tokens)
                if rollout.segment_sampled[number]
            ]
            rollout_index += 1
    window = Window(
        num_tokens=sum(rollout.num_sampled for group in groups for rollout in group.trainable),
        num_rollouts=rollout_index,
        num_groups=len(groups),
    )
    return spread(items, window, num_ranks)


def spread(items: Sequence[ItemReference], window: Window, num_ranks: int) -> tuple[RankShare, ...]:
    """Spread a step's segments, in order of their rollouts, over the ranks; groups together where that balances.

    Siblings share their prompt, which trainers may pack once; so whole groups go to the rank
    with the fewest tokens, longest first, and only a step with fewer groups than ranks is
    spread by rollout. Segments of a rollout stay together: some losses and corrections judge it as a whole.
    """
    groups = [list(bundle) for _, bundle in groupby(items, key=lambda item: item.group_index)]
    rollouts = [list(bundle) for _, bundle in groupby(items, key=lambda item: item.rollout_index)]
    ranks: list[list[ItemReference]] = [[] for _ in range(num_ranks)]
    loads = [0] * num_ranks
    for bundle in sorted(groups if len(groups) >= num_ranks else rollouts, key=_num_tokens, reverse=True):
        lightest = loads.index(min(loads))
        ranks[lightest] += bundle
        loads[lightest] += _num_tokens(bundle)
    return tuple(RankShare(items=tuple(share), window=window) for share in ranks)


def _num_tokens(bundle: Sequence[ItemReference]) -> int:
    return sum(item.num_tokens for item in bundle)
