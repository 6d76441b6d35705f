"""From a session's forest to its `Capture`: what trains, what is left out and why, and how it ended. Pure.

A sample may not be worth training because it is a side call, was constrained, or is an orphan.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from molt_core.api.gateway import Capture
from molt_plugin_gateway.capture.forest import Forest
from molt_plugin_gateway.capture.samples import Sample
from molt_plugin_gateway.capture.segments import left_out, trained_segments
from molt_plugin_gateway.spec import Policy


def capture(forest: Forest, *, orphans: Policy = "train", side_calls: Policy = "leave-out") -> Capture:
    """Each sampled token in exactly one place. Constrained samples never train.

    `truncated` says only whether the last reply was cut off: prompts that do not fit leave no sample.
    """
    samples = forest.samples
    found = {
        "constrained": _constrained(samples),
        "side_call": _side_calls(samples),
        "orphan": _orphans(samples),
    }
    policies: dict[str, Policy] = {"constrained": "leave-out", "side_call": side_calls, "orphan": orphans}
    reasons: dict[int, str] = {}
    for reason, sample_ids in found.items():
        if policies[reason] == "leave-out":
            # the first reason counts
            reasons = dict.fromkeys(sample_ids, reason) | reasons
    segments, ends = trained_segments(samples, reasons)
    # the main conversation is that of the first request at the work itself
    work = [sample for sample in samples if sample.sample_id not in found["side_call"]] or samples
    first = min(work, key=lambda sample: sample.prompt.number, default=None)
    conversation = first.prompt.hints.conversation if first else ""
    main = [sample for sample in work if sample.prompt.hints.conversation == conversation]
    last = next((sample for sample in reversed(main) if sample.sample_id not in found["orphan"]), first)
    questions = [turn.text for turn in first.conversation() if turn.role == "user"] if first else []
    return Capture(
        segments=segments,
        left_out=left_out(samples, reasons),
        ends=ends,
        truncated=last is not None and last.generation.finish_reason == "length",
        prompt_text=questions[-1] if questions else "",
        reply_text=last.reply.text if last else "",
        info={
            "calls": len({sample.prompt.number for sample in samples}),
            "samples": len(samples),
            "roots": sum(sample.parent is None for sample in samples),
            "undelivered": sum(not sample.delivered for sample in samples),
            "constrained": len(found["constrained"]),
            "side_calls": len(found["side_call"]),
            "orphans": len(found["orphan"]),
        },
    )


def _side_calls(samples: Sequence[Sample]) -> set[int]:
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


def _constrained(samples: Sequence[Sample]) -> set[int]:
    """Ids of samples with a JSON schema: their log-probs are those of another distribution than the policy's."""
    return {sample.sample_id for sample in samples if sample.prompt.json_schema is not None}


def _orphans(samples: Sequence[Sample]) -> set[int]:
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
