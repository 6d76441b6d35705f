"""Rollouts to and from bytes: the safetensors format with our JSON in its header. No pickle.

The header's `molt` entry holds everything that is not an array, and the schema number.
Readers accept the current schema only and say so otherwise.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

import numpy as np
from safetensors.numpy import load, save

from molt_core.experience.rollout import LeftOut, Outcome, Rollout, TurnReward
from molt_core.experience.segment import Segment

SCHEMA: Final = 3
ARRAYS: Final = ("token_ids", "sampled", "logprobs", "versions", "top_ids", "top_logprobs")


def encode(rollout: Rollout) -> bytes:
    """Serialise one rollout."""
    tensors = {
        f"{number}.{name}": np.asarray(array)
        for number, segment in enumerate([*rollout.segments, *(part.segment for part in rollout.left_out)])
        for name in ARRAYS
        if (array := getattr(segment, name)) is not None
    }
    header = {
        "schema": SCHEMA,
        "num_segments": len(rollout.segments),
        "left_out": [part.reason for part in rollout.left_out],
        "turn_rewards": [[turn.segment, turn.token, turn.reward] for turn in rollout.turn_rewards],
        "rollout_id": rollout.rollout_id,
        "group_id": rollout.group_id,
        "outcome": str(rollout.outcome),
        "reward": rollout.reward,
        "reason": rollout.reason,
        "detail": rollout.detail,
        "info": dict(rollout.info),
        "prompt_text": rollout.prompt_text,
        "reply_text": rollout.reply_text,
        "seconds": rollout.seconds,
    }
    data: bytes = save(tensors, metadata={"molt": json.dumps(header)})
    return data


def decode(data: bytes) -> Rollout:
    """The inverse of `encode`.

    Raises:
        ValueError: the bytes are no rollout, or of another schema.
    """
    header = _header(data)
    num_segments, reasons = header.pop("num_segments"), header.pop("left_out")
    turns = header.pop("turn_rewards")
    outcome = Outcome(header.pop("outcome"))
    del header["schema"]
    tensors = load(data)
    segments = tuple(
        Segment(**{name: tensors[key] for name in ARRAYS if (key := f"{number}.{name}") in tensors})
        for number in range(num_segments + len(reasons))
    )
    return Rollout(
        segments=segments[:num_segments],
        outcome=outcome,
        left_out=tuple(
            LeftOut(reason=reason, segment=segment)
            for reason, segment in zip(reasons, segments[num_segments:], strict=True)
        ),
        turn_rewards=tuple(TurnReward(segment=turn[0], token=turn[1], reward=turn[2]) for turn in turns),
        **header,
    )


def _header(data: bytes) -> dict[str, Any]:
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["molt"])
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"these {len(data)} bytes hold no rollout: {error!r}") from error
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        schema = header.get("schema") if isinstance(header, dict) else None
        raise ValueError(f"rollout has schema {schema}, this version reads {SCHEMA}")
    return header
