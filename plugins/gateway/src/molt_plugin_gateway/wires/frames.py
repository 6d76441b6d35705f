"""Server-sent events as bytes.

JSON is written in ASCII: a lone surrogate in a tool's arguments can't break the encoding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DONE = b"data: [DONE]\n\n"


def frame(data: Mapping[str, Any], *, event: str = "") -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")
