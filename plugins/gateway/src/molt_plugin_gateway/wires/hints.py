"""What harnesses tell of a request beside its content: which conversation, which kind, which attempt.

None of it is required, and nothing here is strict: a header that can't be read tells nothing.
Seen: Claude Code (`x-claude-code-…`, `metadata.user_id`), Codex (`thread-id`, `x-codex-turn-metadata`), opencode
(`x-session-id`), the SDKs (`x-stainless-retry-count`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from molt_plugin_gateway.exchange import Hints

_CONVERSATION = ("x-claude-code-agent-id", "x-claude-code-session-id", "thread-id", "x-session-id")


def read_hints(headers: Mapping[str, str], body: Mapping[str, Any]) -> Hints:
    sent = {name.lower(): value for name, value in headers.items()}
    candidates = [
        *(sent.get(name) for name in _CONVERSATION),
        body.get("prompt_cache_key"),
        _object(_object(body.get("metadata")).get("user_id")).get("session_id"),
    ]
    kind = _object(sent.get("x-codex-turn-metadata")).get("request_kind")
    retries = sent.get("x-stainless-retry-count", "")
    return Hints(
        conversation=next((text for text in candidates if isinstance(text, str) and text), ""),
        kind=kind if isinstance(kind, str) and kind != "turn" else "",
        retry_count=int(retries) if retries.isascii() and retries.isdigit() and len(retries) < 9 else 0,
    )


def _object(value: Any) -> Mapping[str, Any]:
    """Of JSON text or of an object; empty where it is neither."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
