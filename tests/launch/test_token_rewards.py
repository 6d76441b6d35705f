"""Where a rollout's reward lies: turn rewards on the token that ended the turn, and the rest on the last token."""

from __future__ import annotations

import numpy as np
import pytest

from molt_core.experience import Outcome, Rollout, Segment, TurnReward
from molt_core.launch.trainer_host import token_rewards


def segment(*sampled: bool) -> Segment:
    """One token for each argument."""
    mask = np.array(sampled)
    return Segment(
        token_ids=np.arange(len(mask), dtype=np.int32), sampled=mask,
        logprobs=np.where(mask, -1.0, 0.0).astype(np.float32), versions=np.where(mask, 0, -1).astype(np.int32),
    )  # fmt: skip


NO, YES = False, True
SEGMENTS = (segment(NO, YES, YES, NO, YES), segment(NO, NO, YES, YES))


def rollout(*turns: tuple[int, int, float]) -> Rollout:
    rewards = tuple(TurnReward(segment=where, token=token, reward=reward) for where, token, reward in turns)
    total = sum(turn.reward for turn in rewards)
    return Rollout(
        rollout_id="a", group_id="b", segments=SEGMENTS, outcome=Outcome.FINISHED, reward=total, turn_rewards=rewards
    )  # fmt: skip


@pytest.mark.parametrize(
    ("turns", "total", "first", "second"),
    [
        # without turns all of it is at the end
        ((), 2.0, [0, 0, 0], [0, 2]),
        # two turns in the first segment, over tokens that the policy did not sample, and one at the end
        (((0, 2, 0.25), (0, 4, 0.5), (1, 3, 1.0)), 1.75, [0, 0.25, 0.5], [0, 1]),
        # what a shaper took off lies at the end, too
        (((0, 2, 0.25), (1, 2, 1.0)), 1.0, [0, 0.25, 0], [1, -0.25]),
        (((0, 2, 0.25), (0, 2, 0.25)), 0.5, [0, 0.5, 0], [0, 0]),
    ],
)
def test_all_tokens_of_a_rollout_sum_to_its_reward(
    turns: tuple[tuple[int, int, float], ...], total: float, first: list[float], second: list[float]
) -> None:
    found = [token_rewards(rollout(*turns), number, total, ends=number == 1).tolist() for number in (0, 1)]
    assert found == [first, second]
    assert sum(map(sum, found)) == total
