"""Every invariant of the schema as a named check.

`violations(rollout)` returns the broken ones in words; the worker runs it on each rollout
before it leaves the process, so a wrong rollout is dropped with a reason instead of trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from molt_core.experience.rollout import TRAINABLE, Rollout
from molt_core.experience.segment import NOT_SAMPLED, Segment


def one_token_axis(segment: Segment) -> bool:
    """All arrays of a segment are one-dimensional and have one length."""
    arrays = (segment.token_ids, segment.sampled, segment.logprobs, segment.versions)
    return all(array.shape == segment.token_ids.shape and array.ndim == 1 for array in arrays)


def token_ids_are_valid(segment: Segment) -> bool:
    """No token id is negative."""
    return bool((segment.token_ids >= 0).all())


def first_token_is_given(segment: Segment) -> bool:
    """The first token was not sampled: nothing would predict it."""
    return segment.num_tokens > 0 and not segment.sampled[0]


def sampled_logprobs_are_finite(segment: Segment) -> bool:
    """Each sampled token has a finite log-probability that is not above 0 (1e-4 for rounding)."""
    logprobs = segment.logprobs[segment.sampled]
    return bool(np.isfinite(logprobs).all() and (logprobs <= 1e-4).all())


def given_tokens_carry_nothing(segment: Segment) -> bool:
    """Tokens that were not sampled have log-probability 0 and version -1."""
    given = ~segment.sampled
    return bool((segment.logprobs[given] == 0).all() and (segment.versions[given] == NOT_SAMPLED).all())


def sampled_tokens_have_versions(segment: Segment) -> bool:
    """Each sampled token says which policy version sampled it."""
    return bool((segment.versions[segment.sampled] >= 0).all())


def versions_never_go_back(segment: Segment) -> bool:
    """Within a segment later tokens come from the same or a later policy."""
    return bool((np.diff(segment.versions[segment.sampled]) >= 0).all())


def top_logprobs_fit(segment: Segment) -> bool:
    """Likely tokens and their log-probs are there for each sampled token, equally many, or for none."""
    ids, logprobs = segment.top_ids, segment.top_logprobs
    if ids is None or logprobs is None:
        return ids is None and logprobs is None
    fits = ids.shape == logprobs.shape and ids.ndim == 2 and len(ids) == segment.num_sampled
    return fits and bool((ids >= 0).all())


def top_logprobs_agree(segment: Segment) -> bool:
    """They fall, their probabilities sum to 1 at most, and a sampled one has its own log-prob (1e-3 for rounding)."""
    ids, logprobs = segment.top_ids, segment.top_logprobs
    if ids is None or logprobs is None or not top_logprobs_fit(segment):
        return True
    sampled = segment.token_ids[segment.sampled][:, None], segment.logprobs[segment.sampled][:, None]
    expected = np.where(ids == sampled[0], sampled[1], logprobs)
    return bool(
        (logprobs[:, 1:] <= logprobs[:, :-1]).all()
        and (np.exp(logprobs).sum(-1) <= 1 + 1e-3).all()
        and np.isclose(expected, logprobs, rtol=0, atol=1e-3).all()
    )


SEGMENT_CHECKS: Final[tuple[Callable[[Segment], bool], ...]] = (
    one_token_axis,
    token_ids_are_valid,
    first_token_is_given,
    sampled_logprobs_are_finite,
    given_tokens_carry_nothing,
    sampled_tokens_have_versions,
    versions_never_go_back,
    top_logprobs_fit,
    top_logprobs_agree,
)


def trainable_has_sampled_tokens(rollout: Rollout) -> bool:
    """A finished or truncated rollout holds at least one sampled token."""
    return rollout.outcome not in TRAINABLE or any(segment.num_sampled for segment in rollout.segments)


def trainable_has_finite_reward(rollout: Rollout) -> bool:
    """A finished or truncated rollout has a finite reward."""
    return rollout.outcome not in TRAINABLE or (
        rollout.reward is not None and bool(np.isfinite(rollout.reward))
    )


def excluded_has_reason_and_no_reward(rollout: Rollout) -> bool:
    """A failed or abstained rollout has a reason and no reward: failed is not finished."""
    return rollout.outcome in TRAINABLE or (bool(rollout.reason) and rollout.reward is None)


def left_out_has_reason_and_tokens(rollout: Rollout) -> bool:
    """What is left out has a reason and at least one sampled token."""
    return all(part.reason and part.segment.num_sampled for part in rollout.left_out)


def turn_rewards_lie_on_sampled_tokens(rollout: Rollout) -> bool:
    """Each turn's reward lies on a sampled token of a segment."""
    return all(
        0 <= turn.segment < len(rollout.segments)
        and 0 <= turn.token < len(rollout.segments[turn.segment].sampled)
        and bool(rollout.segments[turn.segment].sampled[turn.token])
        for turn in rollout.turn_rewards
    )


def turn_rewards_sum_to_the_reward(rollout: Rollout) -> bool:
    """Where turns have rewards, their sum is the rollout's."""
    total = math.fsum(turn.reward for turn in rollout.turn_rewards)
    return not rollout.turn_rewards or (
        rollout.reward is not None and math.isclose(total, rollout.reward, rel_tol=1e-9, abs_tol=1e-9)
    )


ROLLOUT_CHECKS: Final[tuple[Callable[[Rollout], bool], ...]] = (
    trainable_has_sampled_tokens,
    trainable_has_finite_reward,
    excluded_has_reason_and_no_reward,
    left_out_has_reason_and_tokens,
    turn_rewards_lie_on_sampled_tokens,
    turn_rewards_sum_to_the_reward,
)


def violations(rollout: Rollout) -> list[str]:
    """Names and sentences of the broken invariants; empty when the rollout is sound."""
    return list(_violations(rollout))


def _violations(rollout: Rollout) -> Iterator[str]:
    for number, segment in enumerate([*rollout.segments, *(part.segment for part in rollout.left_out)]):
        # a segment without one shared axis can't be looked at any further
        checks = SEGMENT_CHECKS if one_token_axis(segment) else (one_token_axis,)
        for segment_check in checks:
            if not segment_check(segment):
                yield f"{segment_check.__name__} (segment {number}): {segment_check.__doc__}"
    for rollout_check in ROLLOUT_CHECKS:
        if not rollout_check(rollout):
            yield f"{rollout_check.__name__}: {rollout_check.__doc__}"
