"""One growing token sequence of a rollout, exactly as the engine was given and returned it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import cmp_using, field, frozen
from attrs.converters import optional

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]

NOT_SAMPLED = -1
"""Version of a token that no policy sampled (prompt, tool result)."""


def _optional(dtype: type[np.generic]) -> object:
    return field(
        default=None,
        converter=optional(lambda values: np.ascontiguousarray(values, dtype=dtype)),
        eq=cmp_using(eq=np.array_equal),
    )


def _array(dtype: type[np.generic]) -> object:
    return field(
        converter=lambda values: np.ascontiguousarray(values, dtype=dtype),
        eq=cmp_using(eq=np.array_equal),
    )


@frozen(kw_only=True)
class Segment:
    """Token ids with, for each sampled token, its behaviour log-probability and policy version.

    Invariants are named checks in `molt_core.experience.checks`.
    """

    token_ids: IntArray = _array(np.int32)  # type: ignore[assignment]
    """[T] int32, prompt and sampled tokens in order."""
    sampled: BoolArray = _array(np.bool_)  # type: ignore[assignment]
    """[T] bool, True where the policy generated the token. Only these are trained."""
    logprobs: FloatArray = _array(np.float32)  # type: ignore[assignment]
    """[T] float32, natural log-probability as sampled (temperature included); 0 where not sampled."""
    versions: IntArray = _array(np.int32)  # type: ignore[assignment]
    """[T] int32, policy version that sampled the token; -1 where not sampled."""
    top_ids: IntArray | None = _optional(np.int32)  # type: ignore[assignment]
    """[n, k] int32 for the n sampled tokens in order: the k that the policy found likeliest there, likeliest first.
    None unless a plugin asks for them (`Facts.top_logprobs`)."""
    top_logprobs: FloatArray | None = _optional(np.float32)  # type: ignore[assignment]
    """[n, k] float32, their log-probabilities as sampled."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_sampled(self) -> int:
        return int(self.sampled.sum())

    @classmethod
    def from_turn(
        cls, prompt_ids: Sequence[int] | IntArray, reply_ids: Sequence[int] | IntArray,
        logprobs: Sequence[float] | FloatArray, versions: Sequence[int] | IntArray, *,
        top_ids: IntArray | None = None, top_logprobs: FloatArray | None = None,
    ) -> Segment:  # fmt: skip
        """A prompt followed by one sampled reply of N tokens with N log-probs and N versions."""
        num_prompt = len(prompt_ids)
        return cls(
            token_ids=np.concatenate([np.asarray(prompt_ids, np.int32), np.asarray(reply_ids, np.int32)]),
            sampled=np.arange(num_prompt + len(reply_ids)) >= num_prompt,
            logprobs=np.concatenate([np.zeros(num_prompt, np.float32), np.asarray(logprobs, np.float32)]),
            versions=np.concatenate(
                [np.full(num_prompt, NOT_SAMPLED, np.int32), np.asarray(versions, np.int32)]
            ),
            top_ids=top_ids,
            top_logprobs=top_logprobs,
        )
