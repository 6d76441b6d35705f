"""Responses through the stock SDK, and requests as Codex, opencode and the Agents SDK send them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from attrs import evolve
from in_process import TURN, Served, choice, plain
from molt_plugin_gateway.exchange import BadRequest, ContextOverflow, Image, TokenLogprob, ToolCall, Turn
from molt_plugin_gateway.wires.responses import Responses
from molt_plugin_gateway.wires.tools import wire_name
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

BASH = {"type": "function", "name": "bash", "strict": False, "parameters": {"type": "object"}}
PATCH = {
    "type": "custom",
    "name": "patch",
    "format": {"type": "grammar", "syntax": "lark", "definition": "s: W"},
}
SPAWN = {"type": "function", "name": "spawn_agent", "parameters": {"type": "object"}, "defer_loading": True}
AGENTS = {"type": "namespace", "name": "multi_agent_v1", "description": "Agents.", "tools": [SPAWN]}
EVENT = TypeAdapter(ResponseStreamEvent)


def read(**body: Any) -> Any:
    return Responses().read({"model": "policy", "input": "hi", **body}, {})


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def test_whole_answer_parses_and_holds_everything() -> None:
    response = Served().openai().responses.create(model="m", input="hi", tools=[BASH])
    assert (response.id, response.model, response.status) == ("resp_42", "m", "completed")
    assert response.output_text == TURN.text
    reasoning, message, first, second = response.output
    assert (reasoning.type, reasoning.summary, reasoning.content[0].text) == ("reasoning", [], TURN.reasoning)
    assert message.status == "completed"
    assert (first.call_id, first.arguments) == ("call_gw0001x0", TURN.tool_calls[0].arguments)
    assert len({item.id for item in response.output}) == 4
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (100, 20, 120)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (60, 5)
    assert second.call_id == "call_gw0001x1"


def test_streamed_answer_is_the_whole_one() -> None:
    served = Served(choice(evolve(TURN, tool_calls=(*TURN.tool_calls, CUSTOM))))
    client = served.openai()
    whole = client.responses.create(model="m", input="hi", tools=[BASH, PATCH])
    with client.responses.stream(model="m", input="hi", tools=[BASH, PATCH]) as stream:
        events = list(stream)
        streamed = stream.get_final_response()
    ours = {item["type"] for item in (plain(one) for one in whole.output)}
    assert ours == {"reasoning", "message", "function_call", "custom_tool_call"}
    assert [drop_parsed(plain(one)) for one in streamed.output] == [plain(one) for one in whole.output]
    assert streamed.usage == whole.usage
    assert events[-1].type == "response.completed"


CUSTOM = ToolCall(id="call_9", name="patch", arguments="*** Begin\n é", custom=True)


def drop_parsed(item: dict[str, Any]) -> dict[str, Any]:
    item.pop("parsed_arguments", None)
    for part in item.get("content") or []:
        part.pop("parsed", None)
    return item


def test_every_event_is_valid_numbered_and_in_order() -> None:
    served = Served(choice(evolve(TURN, tool_calls=(*TURN.tool_calls, CUSTOM))))
    list(served.openai().responses.create(model="m", input="hi", stream=True))
    events = served.events()
    for event in events:
        EVENT.validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-6:] == ["response.output_item.done"] * 5 + ["response.completed"]
    assert kinds.count("response.output_item.done") == 5, "no item is certain before the end"
    assert {kind.removeprefix("response.") for kind in kinds} >= {
        "reasoning_text.delta",
        "output_text.delta",
        "output_text.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "content_part.added",
        "content_part.done",
    }


async def test_async_client_reads_both_forms() -> None:
    client = Served().async_openai()
    whole = await client.responses.create(model="m", input="hi")
    async with client.responses.stream(model="m", input="hi") as stream:
        assert (await stream.get_final_response()).output_text == whole.output_text == TURN.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_answer_is_incomplete(stream: bool) -> None:
    served = Served(choice(Turn(role="assistant", content=("trunc",)), finish_reason="length"))
    result = served.openai().responses.create(model="m", input="hi", stream=stream)
    response = list(result)[-1].response if stream else result
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output[0].status == "incomplete"


def test_empty_answer_has_no_items() -> None:
    served = Served(choice(Turn(role="assistant")))
    client = served.openai()
    assert client.responses.create(model="m", input="hi").output == []
    assert list(client.responses.create(model="m", input="hi", stream=True))[-1].response.output == []


def test_log_probabilities_come_where_include_asks() -> None:
    served = Served(choice(logprobs=(TokenLogprob(token="a", logprob=-0.5),)))
    include = ["message.output_text.logprobs"]
    response = served.openai().responses.create(model="m", input="hi", include=include)
    assert response.output[1].content[0].logprobs[0].logprob == -0.5
    assert served.calls[0].logprobs
    list(served.openai().responses.create(model="m", input="hi", include=include, stream=True))
    for event in served.events():
        EVENT.validate_python(event)


def without(*fields: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda item: {key: value for key, value in item.items() if key not in fields}


ECHOES = {
    "verbatim": without(),
    "codex": lambda item: {**item, "content": None} if item["type"] == "reasoning" else item,
    "opencode": lambda item: without("id", "status", *(["content"] if item["type"] == "reasoning" else []))(
        item
    ),
    "without encrypted content": without("encrypted_content"),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_echoed_items_read_back_as_the_turn_that_was_sent(echo: Any) -> None:
    spawn = ToolCall(
        id="call_8", name="multi_agent_v1__spawn_agent", arguments="{}", namespace="multi_agent_v1"
    )
    turn = evolve(TURN, tool_calls=(*TURN.tool_calls, CUSTOM, spawn))
    served = Served(choice(turn))
    client = served.openai()
    tools = [BASH, PATCH, AGENTS]
    items = client.responses.create(model="m", input=[user("hi")], tools=tools).output
    assert (items[-1].name, items[-1].namespace) == ("spawn_agent", "multi_agent_v1")
    results = [
        {
            "type": "custom_tool_call_output",
            "call_id": "call_9",
            "output": [{"type": "input_text", "text": "ok"}],
        },
        {"type": "function_call_output", "call_id": "call_8", "output": "started"},
    ]
    history = [user("hi"), *(echo(plain(item)) for item in items), *results]
    client.responses.create(model="m", input=history, tools=tools)
    assert served.calls[1].turns == (
        Turn(role="user", content=("hi",)),
        turn,
        Turn(role="tool", content=("ok",), tool_call_id="call_9"),
        Turn(role="tool", content=("started",), tool_call_id="call_8"),
    )


def test_codex_request() -> None:
    body = {
        "model": "policy",
        "stream": True,
        "store": False,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a2",
        "client_metadata": {"x": "y"},
        "input": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "developer",
                "content": [{"type": "input_text", "text": "You are a coding agent…"}],
            },
            user("<environment_context>…"),
            user("Run echo hi…"),
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "bW9s"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Let me", "annotations": []}],
            },
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "exec_command",
                "arguments": '{"cmd":  "echo hi"}',
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "Chunk ID: …\nOutput:\nhi\n"},
        ],
        "tools": [
            {"type": "function", "name": "exec_command", "strict": False, "parameters": {"type": "object"}},
            AGENTS,
            {"type": "web_search", "external_web_access": True},
        ],
    }
    headers = {"Thread-Id": "01a2", "x-codex-turn-metadata": json.dumps({"request_kind": "compaction"})}
    call = Responses().read(body, headers)
    assert [turn.role for turn in call.turns] == ["system", "user", "user", "assistant", "tool"]
    assert call.turns[3] == Turn(
        role="assistant",
        content=("Let me",),
        tool_calls=(ToolCall(id="call_1", name="exec_command", arguments='{"cmd":  "echo hi"}'),),
    )
    assert [(tool.name, tool.namespace, wire_name(tool)) for tool in call.tools] == [
        ("exec_command", "", "exec_command"),
        ("multi_agent_v1__spawn_agent", "multi_agent_v1", "spawn_agent"),
    ]
    assert call.ignored == ("tools.web_search",)
    assert (call.hints.conversation, call.hints.kind) == ("01a2", "compaction")


def test_agents_sdk_request() -> None:
    call = read(include=[], instructions="Be brief.", tools=[{**BASH, "strict": True}], max_output_tokens=9)
    assert call.turns == (Turn(role="system", content=("Be brief.",)), Turn(role="user", content=("hi",)))
    assert call.max_tokens == 9


def test_one_answer_after_another_makes_two_turns() -> None:
    def said(text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": text}

    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    call = read(input=[user("hi"), said("a"), said("b"), thought, said("c")])
    assert [(turn.text, turn.reasoning) for turn in call.turns[1:]] == [("a", None), ("b", None), ("c", "hm")]


def test_images_and_tools_that_come_with_items() -> None:
    image = {"type": "input_image", "detail": "auto", "image_url": "https://x/y.png"}
    found = {"type": "tool_search_output", "tools": [BASH], "call_id": None}
    call = read(
        input=[{"role": "user", "content": [image]}, found, {"type": "additional_tools", "tools": [PATCH]}]
    )
    assert call.turns == (Turn(role="user", content=(Image(url="https://x/y.png"),)),)
    assert [tool.name for tool in call.tools] == ["bash", "patch"]
    assert "lark grammar:\ns: W" in call.tools[1].description


def test_formats_and_choices() -> None:
    form = {"type": "json_schema", "name": "t", "schema": {"type": "object"}}
    assert json.loads(read(text={"format": form, "verbosity": "low"}).json_schema) == {"type": "object"}
    assert read(text={"format": {"type": "text"}}).json_schema is None
    assert read(text={"verbosity": "low"}).json_schema is None
    tools = [BASH, AGENTS]
    assert read(tools=tools, tool_choice={"type": "function", "name": "spawn_agent"}).tool_choice.namespace
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "bash"}]}
    assert [tool.name for tool in read(tools=tools, tool_choice=allowed).tools] == ["bash"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "c"}}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "rs_1"}]}, "input.0"),
        ({"input": [{"id": "rs_1"}]}, "input.0"),
        ({"input": [{"type": "mcp_call"}]}, "input.0.type"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input.0.call_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0.type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input.0.content.0.image_url",
        ),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [AGENTS]}]}, "tools.0.tools.0.type"),
        ({"tools": [{"type": "apply_patch"}]}, "tools.0.type"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice.type"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
    ],
)
def test_what_cannot_be_honoured_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(**body)
    assert caught.value.param == param


def test_errors_come_as_the_sdk_and_codex_know_them() -> None:
    overflow = ContextOverflow(9000, 8192)
    with pytest.raises(openai.BadRequestError) as caught:
        Served(problem=overflow).openai().responses.create(model="m", input="hi")
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    for problem, code in [
        (overflow, "context_length_exceeded"),
        (BadRequest("no", code="closed"), "invalid_prompt"),
    ]:
        served = Served(problem=problem, late=True)
        client = served.openai(strict=False)  # the SDK's types don't have the code that Codex knows
        failed = list(client.responses.create(model="m", input="hi", stream=True))[-1]
        assert (failed.type, failed.response.status, failed.response.error.code) == (
            "response.failed",
            "failed",
            code,
        )
        assert failed.response.error.message == problem.message
