"""Where the seconds of a step went, and how many tokens came of them. Pure; names as in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence

from molt_core.experience import Group
from molt_core.loop.learner import Learned
from molt_core.loop.ports import Published


def timings(
    groups: Sequence[Group], learned: Learned, published: Published | None, *,
    wait_s: float, idle_s: float, step_s: float,
) -> dict[str, float]:  # fmt: skip
    """`time/*` and `tokens/*` of one step.

    Args:
        published: None if the step was skipped.
        wait_s: the learner waited for rollouts.
        idle_s: nothing was in flight because the producer waited for the learner.
        step_s: from the end of the last step to the end of this one.
    """
    num_sampled = sum(rollout.num_generated for group in groups for rollout in group.rollouts)
    first_start = min(group.started_s for group in groups)
    return {
        "time/generate_s": max(group.finished_s for group in groups) - first_start,
        "time/train_s": learned.train_s,
        "time/sync_s": published.gather_s + published.load_s if published else 0.0,
        "time/wait_rollouts_s": wait_s,
        "time/wait_trainer_s": idle_s,
        "time/step_s": step_s,
        "tokens/trained_per_s": learned.num_tokens / step_s if step_s else 0.0,
        "tokens/sampled_per_s": num_sampled / step_s if step_s else 0.0,
    }
