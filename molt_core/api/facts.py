"""Facts: the closed vocabulary in which plugins say what they provide, need and refuse.

Closed, because a typo in a free string would be a rule that never fires. A stranger's own
fact is written `x-<distribution>/<fact>`.
"""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

GROUPED_SAMPLES: Final = "grouped-samples"
MIXED_VERSIONS: Final = "mixed-version-rollouts"
STRICTLY_ON_POLICY: Final = "strictly-on-policy"
SAMPLED_LOGPROBS: Final = "sampled-logprobs"
TASK_SOURCE: Final = "task-source"
DATA_ROWS: Final = "data-rows"
LOCAL_PROCESS: Final = "engine-in-driver"
REFERENCE_MODEL: Final = "reference-model"
ROLLOUT_RATIO: Final = "rollout-ratio"
ENTROPY_GRADIENT: Final = "entropy-gradient"
CORRECTED: Final = "corrected"
TOKEN_ADVANTAGES: Final = "token-advantages"  # noqa: S105 - no password
CRITIC: Final = "critic"
TEACHER: Final = "teacher"
TOP_LOGPROBS: Final = "top-logprobs"
CENTERING_TERM: Final = "centering-term"

VOCABULARY: Final = {
    GROUPED_SAMPLES: "every prompt is sampled more than once (group-size > 1)",
    MIXED_VERSIONS: "one rollout may hold tokens of several policy versions (partial, max-staleness > 0)",
    STRICTLY_ON_POLICY: "every trained token was sampled by the current policy (max-staleness = 0)",
    SAMPLED_LOGPROBS: "the engine returns the log-probability of each token under the distribution it was drawn from",
    TASK_SOURCE: "the environment makes its own tasks, so --data is not needed",
    DATA_ROWS: "tasks come from rows of --data",
    LOCAL_PROCESS: "the engine runs inside the driver's own process",
    REFERENCE_MODEL: "trainers hold a frozen model whose log-probs they compute beside the policy's",
    ROLLOUT_RATIO: "a pass before the step measures how far each rollout is from the policy that sampled it",
    ENTROPY_GRADIENT: "the entropy of each token carries a gradient",
    TOKEN_ADVANTAGES: "the estimator makes an advantage for each token, on the trainer's ranks",
    CRITIC: "trainers hold a second model that estimates the value of every token's prefix",
    TEACHER: "the frozen reference is another model than the policy, named by --reference",
    TOP_LOGPROBS: "the engine can return the log-probs of the likeliest tokens beside the sampled one",
    CENTERING_TERM: "the loss adds the term of corrections that centre the score",
    CORRECTED: "weights account for tokens of another policy; the loss's ratio is against the policy before the step",
}


@frozen(kw_only=True)
class Facts:
    """What one chosen plugin states about itself under its options."""

    provides: frozenset[str] = field(default=frozenset(), converter=frozenset)
    """True once this plugin is in the plan."""
    needs: frozenset[str] = field(default=frozenset(), converter=frozenset)
    """Must be provided by someone in the plan."""
    refuses: frozenset[str] = field(default=frozenset(), converter=frozenset)
    """Must not be provided by anyone in the plan."""
    owns: frozenset[str] = field(default=frozenset(), converter=frozenset)
    """Exclusive things, e.g. `mesh-axis:ep`; two owners of one thing are a conflict."""
    top_logprobs: int = 0
    """Wants ids and log-probs of this many of the likeliest tokens beside each sampled one. A run records as many
    as the plugin that wants most; who reads them takes those that come first."""
