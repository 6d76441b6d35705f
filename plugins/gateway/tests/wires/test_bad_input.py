"""Whatever JSON comes in, a wire reads it or says which field is at fault."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from molt_plugin_gateway.exchange import BadRequest, Call
from molt_plugin_gateway.wires import WIRES
from molt_plugin_gateway.wires.node import Node

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
DOCUMENT = {
    "type": "document",
    "title": "t",
    "source": {"type": "content", "content": [{"type": "text", "text": "x"}]},
}
SEARCH = {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "x"}]}

BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {
        "model": "m",
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "x"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning": "r",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "custom", "custom": {"name": "c", "input": "x"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "x"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}},
            {
                "type": "custom",
                "custom": {
                    "name": "c",
                    "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}},
                },
            },
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "stop": ["x"],
        "max_tokens": 5,
        "n": 2,
        "stream": True,
        "stream_options": {"include_usage": True},
        "modalities": ["text"],
        "logit_bias": {},
        "top_logprobs": 0,
    },
    "/responses": {
        "model": "m",
        "instructions": "i",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": "https://x"}],
            },
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "molt.eA=="},
            {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}", "namespace": "ns"},
            {"type": "custom_tool_call", "call_id": "b", "name": "c", "input": "x"},
            {"type": "function_call_output", "call_id": "a", "output": "x"},
            {
                "type": "tool_search_output",
                "tools": [{"type": "function", "name": "g", "parameters": SCHEMA}],
            },
        ],
        "tools": [
            {
                "type": "namespace",
                "name": "ns",
                "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
            },
            {
                "type": "custom",
                "name": "c",
                "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
            },
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
        "include": ["message.output_text.logprobs"],
        "reasoning": {"effort": "low"},
        "max_output_tokens": 5,
        "prompt_cache_key": "k",
    },
    "/messages": {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": [IMAGE, DOCUMENT, SEARCH]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "is_error": True,
                        "content": [{"type": "tool_reference", "tool_name": "f"}],
                    },
                    {
                        "type": "tool_addition",
                        "tool": {"type": "tool_definition", "definition": {"name": "h"}},
                    },
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA, "defer_loading": True}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "stop_sequences": ["x"],
        "metadata": {"user_id": '{"session_id": "s"}'},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    },
}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5)
    | st.sampled_from(
        ["", "text", "function", "custom", "assistant", "tool", "required", "json_schema", "molt.x"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "text", "tools", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*path, key))


def put(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(body)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


@pytest.mark.parametrize("route", BODIES)
def test_the_full_body_is_read(route: str) -> None:
    assert WIRES[route]().read(BODIES[route], {}).turns


@pytest.mark.parametrize("route", BODIES)
@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_any_json_in_place_of_any_value_is_read_or_refused_by_name(route: str, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(places(BODIES[route]))))
    body = put(BODIES[route], path, data.draw(JSON))
    try:
        call = WIRES[route]().read(body, {})
    except BadRequest as problem:
        assert problem.message
        if isinstance(body, dict):
            assert problem.param
            assert problem.param.split(".")[0] in {*BODIES[route], *body}
    else:
        assert isinstance(call, Call)
        for turn in call.turns:
            for text in [turn.text, turn.reasoning or "", *(one.arguments for one in turn.tool_calls)]:
                text.encode()


@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize("shape", ["objects", "lists", "documents"])
def test_deep_nesting_is_read_or_refused(route: str, shape: str) -> None:
    deep: Any = "x"
    for _ in range(300):
        if shape == "documents":
            deep = [{"type": "document", "source": {"type": "content", "content": deep}}]
        else:
            deep = {"a": deep} if shape == "objects" else [deep]
    for path in places(BODIES[route]):
        try:
            WIRES[route]().read(put(BODIES[route], path, deep), {})
        except BadRequest:
            continue


def test_a_schema_may_be_large_but_not_deep() -> None:
    wide = {"properties": {f"p{index}": {"type": "string", "enum": ["a"]} for index in range(1000)}}
    assert json.loads(Node(wide).json()) == wide
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    with pytest.raises(BadRequest, match="nested"):
        Node(deep, "schema").json()
