"""From a session's forest to its `Capture`: what trains, what is left out and why, and how it ended. Pure."""

from __future__ import annotations

from typing import Literal

from molt_core.api.gateway import Capture
from molt_plugin_gateway.capture import labels
from molt_plugin_gateway.capture.forest import Forest
from molt_plugin_gateway.capture.segments import left_out, trained_segments

Policy = Literal["train", "leave-out"]


def capture(forest: Forest, *, orphans: Policy = "train", side_calls: Policy = "leave-out") -> Capture:
    """Each sampled token in exactly one place. Constrained samples never train.

    `truncated` says only whether the last reply was cut off: prompts that do not fit leave no sample.
    """
    samples = forest.samples
    found = {
        "constrained": labels.constrained(samples),
        "side_call": labels.side_calls(samples),
        "orphan": labels.orphans(samples),
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
