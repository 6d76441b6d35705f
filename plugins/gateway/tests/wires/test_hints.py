"""What headers and metadata tell; none of it can fail a request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from molt_plugin_gateway.exchange import Hints
from molt_plugin_gateway.wires.hints import read_hints


@pytest.mark.parametrize(
    ("headers", "body", "hints"),
    [
        ({}, {}, Hints()),
        ({"X-Claude-Code-Session-Id": "s", "x-claude-code-agent-id": "a"}, {}, Hints(conversation="a")),
        ({"x-claude-code-session-id": "s"}, {}, Hints(conversation="s")),
        ({"thread-id": "t", "session-id": "s"}, {"prompt_cache_key": "k"}, Hints(conversation="t")),
        ({"x-session-id": "ses_1", "x-parent-session-id": "ses_0"}, {}, Hints(conversation="ses_1")),
        ({}, {"prompt_cache_key": "k"}, Hints(conversation="k")),
        ({}, {"metadata": {"user_id": json.dumps({"session_id": "7037"})}}, Hints(conversation="7037")),
        ({"x-codex-turn-metadata": '{"request_kind": "turn"}'}, {}, Hints()),
        ({"x-codex-turn-metadata": '{"request_kind": "compaction"}'}, {}, Hints(kind="compaction")),
        ({"x-stainless-retry-count": "2"}, {}, Hints(retry_count=2)),
        ({"x-stainless-retry-count": "NOT_GIVEN", "x-stainless-timeout": "NOT_GIVEN"}, {}, Hints()),
        ({"x-codex-turn-metadata": "{", "x-stainless-retry-count": "-1"}, {"metadata": ["x"]}, Hints()),
        ({"x-codex-turn-metadata": "[1]"}, {"metadata": {"user_id": 5}, "prompt_cache_key": {}}, Hints()),
        ({"x-codex-turn-metadata": '{"request_kind": 5}'}, {"metadata": {"user_id": "plain"}}, Hints()),
    ],
)
def test_hints(headers: dict[str, str], body: dict[str, Any], hints: Hints) -> None:
    assert read_hints(headers, body) == hints
