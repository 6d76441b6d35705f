"""One round of learning: groups in, one optimizer step, metrics out. Does not publish or save."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attrs import frozen

from molt_core.api.estimator import Estimator
from molt_core.api.shaping import Shaper
from molt_core.api.trainer import StepResult
from molt_core.experience import Group
from molt_core.loop.ports import Policy
from molt_core.loop.shares import advantages_of, reward_batch, shares


@frozen(kw_only=True)
class Learned:
    result: StepResult
    train_s: float
    num_tokens: int
    """Sampled tokens that were trained on."""
    shaped_reward: float | None = None
    """Mean of what the estimator saw, where a shaper changed the rewards."""


async def learn(
    groups: Sequence[Group], *, estimator: Estimator, policy: Policy, shaper: Shaper | None = None
) -> Learned:
    """Advantages over whole groups, then one optimizer step over all ranks."""
    started = asyncio.get_running_loop().time()
    batch = reward_batch(groups, shaper)
    advantages = advantages_of(estimator, batch)
    result = await policy.step(shares(groups, advantages, policy.num_ranks))
    return Learned(
        result=result,
        train_s=asyncio.get_running_loop().time() - started,
        num_tokens=int(batch.num_tokens.sum()),
        shaped_reward=None if shaper is None else float(batch.rewards.mean()),
    )
