"""From samples to segments of exact tokens. Pure.

Each way through the forest of tokens, from a root to a sample that no trained one extends, is one
segment. A sample on several ways is `sampled` in the first only, in the order of their last
samples; in the others its tokens are context.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from molt_core.api.gateway import Place, recorded
from molt_core.experience.rollout import LeftOut
from molt_core.experience.segment import Segment
from molt_plugin_gateway.capture.samples import Sample


def trained_segments(
    samples: Sequence[Sample], reasons: Mapping[int, str]
) -> tuple[tuple[Segment, ...], dict[int, Place]]:
    """Segments of the samples without a reason to leave them out, and where each of these ends."""
    kept = [sample for sample in samples if sample.sample_id not in reasons]
    inner = {above.sample_id for sample in kept for above in sample.path()[:-1]}
    segments: list[Segment] = []
    ends: dict[int, Place] = {}
    for leaf in kept:
        if leaf.sample_id in inner:
            continue
        fresh = [
            sample
            for sample in leaf.path()
            if sample.sample_id not in reasons and sample.sample_id not in ends
        ]
        for sample in fresh:
            ends[sample.sample_id] = Place(segment=len(segments), token=sample.num_tokens - 1)
        segments.append(_segment(leaf, {sample.sample_id for sample in fresh}))
    return tuple(segments), ends


def left_out(samples: Sequence[Sample], reasons: Mapping[int, str]) -> tuple[LeftOut, ...]:
    """One for each sample with a reason."""
    return tuple(
        LeftOut(reason=reasons[sample.sample_id], segment=_segment(sample, {sample.sample_id}))
        for sample in samples
        if sample.sample_id in reasons
    )


def _segment(last: Sample, sampled_ids: Container[int]) -> Segment:
    fresh = [sample for sample in last.path() if sample.sample_id in sampled_ids]
    replies = [(sample.prompt.num_tokens, sample.generation) for sample in fresh]
    return recorded(last.token_ids(), replies)
