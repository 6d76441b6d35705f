"""When a group may start and which groups a step takes, so that no token is ever too stale.

Pure functions. A *round* is one turn of the learner: it consumes P = prompts_per_step groups
and raises the policy version by at most one, so lag in versions never exceeds lag in rounds.

A group that starts in round r has deadline r + S (S = max_staleness): it has to be consumed in
that round at the latest. Admission lets at most P (r + S + 1) groups be claimed (consumed,
ready or in flight) by round r, which is exactly the number of places up to its deadline; the
choice of a step never gives away a place that an earlier deadline needs. Hence every admitted
group is consumed in time, and nothing has to be discarded for being stale. A group that is
dropped frees its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def may_start(
    num_claimed: int, round_number: int, *, prompts_per_step: int, max_staleness: int, rounds: int
) -> bool:
    """Whether one more group may start now.

    Args:
        num_claimed: groups started so far, less those dropped.
        round_number: rounds that have ended.
        rounds: rounds in the whole run; no group starts that no round would consume.
    """
    last_round = min(round_number + max_staleness + 1, rounds)
    return num_claimed < prompts_per_step * last_round


def feasible(deadlines: Iterable[int], next_round: int, *, prompts_per_step: int) -> bool:
    """Whether groups with these deadlines can all be consumed in time from `next_round` on."""
    return all(
        deadline >= next_round + place // prompts_per_step for place, deadline in enumerate(sorted(deadlines))
    )


def choose(
    ready: Sequence[int], pending: Sequence[int], round_number: int, *, prompts_per_step: int
) -> tuple[int, ...] | None:
    """Pick the groups of this round, or None to wait for more.

    Those that finished first are preferred, so that one long rollout does not hold up the
    step; only if that would make another group late, the earliest deadlines go first.

    Args:
        ready: deadlines of finished groups, in order of completion.
        pending: deadlines of groups in flight.

    Returns:
        Indices into `ready`, prompts_per_step of them.
    """
    if len(ready) < prompts_per_step:
        return None
    by_completion = range(len(ready))
    by_deadline = sorted(by_completion, key=lambda index: ready[index])
    for order in (by_completion, by_deadline):
        picked = tuple(order[:prompts_per_step])
        rest = [deadline for index, deadline in enumerate(ready) if index not in picked]
        if feasible([*rest, *pending], round_number + 1, prompts_per_step=prompts_per_step):
            return picked
    return None
