"""Why a sample may not be worth training: side calls, constrained replies, orphans. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from molt_plugin_gateway.capture.samples import Sample


def side_calls(samples: Sequence[Sample]) -> set[int]:
    """Ids of samples beside the work itself: titles, compactions and what else a harness asks by the way.

    The harness says so, or asks for JSON with a title, or sends no tools though the session has some and no
    request with tools continued the reply.
    """
    worked = {sample.sample_id for sample in samples if sample.prompt.has_tools}
    for sample in reversed(samples):
        if sample.sample_id in worked and sample.prompt.follows:
            worked.add(sample.prompt.follows.sample_id)
    return {
        sample.sample_id
        for sample in samples
        if sample.prompt.hints.kind
        or _asks_for_title(sample.prompt.json_schema)
        or (worked and sample.sample_id not in worked)
    }


def constrained(samples: Sequence[Sample]) -> set[int]:
    """Ids of samples with a JSON schema: their log-probs are those of another distribution than the policy's."""
    return {sample.sample_id for sample in samples if sample.prompt.json_schema is not None}


def orphans(samples: Sequence[Sample]) -> set[int]:
    """Ids of samples that the agent did not go on from: never delivered, or their turn was asked again or replaced.

    No later history holds the reply, but one of the same conversation goes past it: prepared after the
    reply was there, and not coming from a sibling that ran at the same time, as parallel agents with equal
    prompts do. The last answer of a conversation is none.
    """
    found = {sample.sample_id for sample in samples if not (sample.delivered or sample.followed)}
    for later in samples:
        node, ancestor = later.asked, later.prompt.follows
        while True:
            sibling = ancestor if ancestor and ancestor.asked is node else None
            for sample in node.asked:
                passed = later.prompt.prepared_at > sample.sample_id and (
                    sibling is None or sibling.prompt.prepared_at > sample.sample_id
                )
                same = later.prompt.hints.conversation == sample.prompt.hints.conversation
                if passed and same and not sample.followed:
                    found.add(sample.sample_id)
            if sibling:
                ancestor = sibling.prompt.follows
            if node.above is None:
                break
            node = node.above
    return found


def _asks_for_title(json_schema: str | None) -> bool:
    try:
        schema = json.loads(json_schema or "{}")
        return "title" in schema.get("properties", {})
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False
