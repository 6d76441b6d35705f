"""One run of an agent or environment, and the light part of it that the controller reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from molt_core.experience.segment import Segment


class Outcome(StrEnum):
    """How a rollout ended. Failed is not finished: an error is never a reward of 0."""

    FINISHED = "finished"
    """The policy ended its reply and it was graded."""
    TRUNCATED = "truncated"
    """A length limit ended the reply; it was graded as it stands and trains."""
    FAILED = "failed"
    """Something raised, hung or died; excluded, with a reason."""
    ABSTAINED = "abstained"
    """The grader had no opinion (None, NaN, infinite); excluded from statistics and training."""


TRAINABLE = frozenset({Outcome.FINISHED, Outcome.TRUNCATED})


@frozen(kw_only=True)
class LeftOut:
    """Sampled tokens that are kept but do not train."""

    reason: str
    """`orphan`, `side_call`, `constrained`."""
    segment: Segment
    """`sampled` is true for these tokens only; those before them are context."""


@frozen(kw_only=True)
class TurnReward:
    """Reward of one turn, at the last token of the sample that earned it."""

    segment: int
    token: int
    reward: float


@frozen(kw_only=True)
class Rollout:
    """Segments of exact tokens, one reward, an outcome. A new segment starts when the history was rewritten."""

    rollout_id: str
    group_id: str
    segments: tuple[Segment, ...]
    outcome: Outcome
    reward: float | None = None
    """Raw score, before any shaping; None unless the outcome is finished or truncated."""
    reason: str = ""
    """Short word for the ledger when the rollout does not train: `reward_error`, `timeout`, …"""
    detail: str = ""
    """The error behind the reason, with its type and place."""
    left_out: tuple[LeftOut, ...] = ()
    turn_rewards: tuple[TurnReward, ...] = ()
    """Where `reward` came from, turn by turn, if the environment says; their sum is `reward`."""
    info: Mapping[str, float] = field(factory=dict)
    """Numbers from the grader, averaged over those rollouts that report them."""
    prompt_text: str = ""
    reply_text: str = ""
    seconds: float = 0.0
    """Wall time from dispatch to grade."""


@frozen(kw_only=True)
class RolloutSummary:
    """What the controller sees of a rollout: counts, reward and a handle on the heavy part."""

    rollout_id: str
    group_id: str
    outcome: Outcome
    reward: float | None
    reason: str
    detail: str
    segment_tokens: tuple[int, ...]
    """Tokens of each segment, prompt included."""
    segment_sampled: tuple[int, ...]
    """Sampled tokens of each segment."""
    left_out_tokens: Mapping[str, int] = field(factory=dict)
    """Sampled tokens that never train, by reason."""
    oldest_version: int | None
    newest_version: int | None
    info: Mapping[str, float]
    prompt_text: str
    reply_text: str
    seconds: float
    payload: Any = None
    """Opaque to the loop: the rollout itself, or a reference into the object store."""

    @property
    def trains(self) -> bool:
        return self.outcome in TRAINABLE and self.reward is not None and self.num_sampled > 0

    @property
    def num_sampled(self) -> int:
        return sum(self.segment_sampled)

    @property
    def num_generated(self) -> int:
        """Every token that the policy sampled, left-out ones included."""
        return self.num_sampled + sum(self.left_out_tokens.values())


MAX_PREVIEW_BYTES: Final = 256
MAX_DETAIL_BYTES: Final = 4096
"""Every rollout's summary passes the controller, which must not feel how long the texts are."""


def cut(text: str, num_bytes: int) -> str:
    """At most `num_bytes` of UTF-8 from the start of `text`."""
    # the first slice keeps the encoder from megabytes; what is cut in mid-character is left out
    return text[:num_bytes].encode("utf-8", "replace")[:num_bytes].decode("utf-8", "ignore")


def summarize(rollout: Rollout, payload: Any) -> RolloutSummary:
    """The light part of `rollout`; of texts only their starts."""
    versions = [segment.versions[segment.sampled] for segment in rollout.segments if segment.num_sampled]
    left_out = Counter[str]()
    for part in rollout.left_out:
        left_out[part.reason] += part.segment.num_sampled
    return RolloutSummary(
        rollout_id=rollout.rollout_id,
        group_id=rollout.group_id,
        outcome=rollout.outcome,
        reward=rollout.reward,
        reason=rollout.reason,
        detail=cut(rollout.detail, MAX_DETAIL_BYTES),
        segment_tokens=tuple(segment.num_tokens for segment in rollout.segments),
        segment_sampled=tuple(segment.num_sampled for segment in rollout.segments),
        left_out_tokens=dict(left_out),
        oldest_version=min((int(part.min()) for part in versions), default=None),
        newest_version=max((int(part.max()) for part in versions), default=None),
        info=dict(rollout.info),
        prompt_text=cut(rollout.prompt_text, MAX_PREVIEW_BYTES),
        reply_text=cut(rollout.reply_text, MAX_PREVIEW_BYTES),
        seconds=rollout.seconds,
        payload=payload,
    )
