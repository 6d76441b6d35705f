"""Messages through the stock SDK, and requests as Claude Code and litellm send them."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from anthropic.types import RawMessageStreamEvent
from attrs import evolve
from in_process import TURN, Served, choice, plain
from molt_plugin_gateway.exchange import BadRequest, ContextOverflow, Image, ToolCall, Turn
from molt_plugin_gateway.wires.messages import CountTokens, Messages
from pydantic import TypeAdapter

HELLO = [{"role": "user", "content": "hi"}]
BASH = {"name": "Bash", "description": "Run.", "input_schema": {"type": "object"}}
LATER = {"name": "Later", "input_schema": {"type": "object"}, "defer_loading": True}
EVENT = TypeAdapter(RawMessageStreamEvent)


def read(**body: Any) -> Any:
    return Messages().read({"model": "policy", "max_tokens": 9, "messages": HELLO, **body}, {})


def result(content: Any, **more: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content, **more}]}
    ]


def test_whole_answer_parses_and_holds_everything() -> None:
    message = Served().anthropic().messages.create(model="m", max_tokens=9, messages=HELLO, tools=[BASH])
    assert (message.id, message.model, message.role) == ("msg_42", "m", "assistant")
    thinking, text, first, second = message.content
    assert (thinking.thinking, text.text) == (TURN.reasoning, TURN.text)
    assert thinking.signature
    assert (first.id, first.name, first.input) == ("call_gw0001x0", "bash", {"cmd": "echo hi"})
    assert second.input == {"cmd": "ls", "n": 2.5}
    assert (message.stop_reason, message.stop_sequence) == ("tool_use", None)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (40, 60, 20)
    assert usage.output_tokens_details.thinking_tokens == 5


def test_streamed_answer_is_the_whole_one() -> None:
    served = Served()
    client = served.anthropic()
    whole = client.messages.create(model="m", max_tokens=9, messages=HELLO, tools=[BASH])
    with client.messages.stream(model="m", max_tokens=9, messages=HELLO, tools=[BASH]) as stream:
        streamed = stream.get_final_message()
    assert [plain(block) for block in streamed.content] == [plain(block) for block in whole.content]
    assert streamed.stop_reason == whole.stop_reason
    assert plain(streamed.usage) == plain(whole.usage)
    kinds = [event["type"] for event in served.events()]
    assert kinds[:4] == ["message_start", "ping", "ping", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    for event in served.events():
        if event["type"] != "ping":
            EVENT.validate_python(event)


def test_the_beta_client_reads_it_too() -> None:
    served = Served()
    client = served.anthropic().beta.messages
    whole = client.create(model="m", max_tokens=9, messages=HELLO, betas=["x"])
    with client.stream(model="m", max_tokens=9, messages=HELLO, betas=["x"]) as stream:
        streamed = stream.get_final_message()
    assert [plain(block) for block in streamed.content] == [plain(block) for block in whole.content]


async def test_async_client_reads_both_forms() -> None:
    client = Served().async_anthropic()
    whole = await client.messages.create(model="m", max_tokens=9, messages=HELLO)
    async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
        streamed = await stream.get_final_message()
    assert [plain(block) for block in streamed.content] == [plain(block) for block in whole.content]


@pytest.mark.parametrize(
    ("more", "reason", "text"),
    [
        ({"finish_reason": "length"}, "max_tokens", None),
        ({"finish_reason": "stop"}, "end_turn", None),
        ({"finish_reason": "stop", "stop_text": "</code>"}, "stop_sequence", "</code>"),
    ],
)
def test_stop_reasons(more: dict[str, Any], reason: str, text: str | None) -> None:
    client = Served(choice(Turn(role="assistant", content=("a",)), **more)).anthropic()
    whole = client.messages.create(model="m", max_tokens=9, messages=HELLO)
    with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert (message.stop_reason, message.stop_sequence) == (reason, text)


def test_empty_answer_has_no_blocks() -> None:
    client = Served(choice(Turn(role="assistant"))).anthropic()
    assert client.messages.create(model="m", max_tokens=9, messages=HELLO).content == []


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ('{"command": "echo h', {"__unparsedToolInput": '{"command": "echo h'}),
        ("[1]", {"__unparsedToolInput": "[1]"}),
        ('{"a": NaN}', {"__unparsedToolInput": '{"a": NaN}'}),
        ('{"a": 1e999}', {"__unparsedToolInput": '{"a": 1e999}'}),
        ('{"a": "\\ud83d"}', {"a": "\ud83d"}),
    ],
)
def test_arguments_are_always_sent_as_an_object(arguments: str, value: dict[str, Any]) -> None:
    call = ToolCall(id="call_1", name="Bash", arguments=arguments)
    served = Served(choice(Turn(role="assistant", tool_calls=(call,))))
    list(served.anthropic().messages.create(model="m", max_tokens=9, messages=HELLO, stream=True))
    [text] = [
        event["delta"]["partial_json"]
        for event in served.events()
        if "delta" in event and "partial_json" in event["delta"]
    ]
    assert json.loads(text) == value


def test_echoed_message_reads_back_as_the_turn_that_was_sent() -> None:
    bad = ToolCall(id="call_9", name="Bash", arguments='{"command": "echo h')
    turn = evolve(TURN, tool_calls=(*TURN.tool_calls, bad))
    served = Served(choice(turn))
    client = served.anthropic()
    message = client.messages.create(model="m", max_tokens=9, messages=HELLO, tools=[BASH])
    results = [
        {"type": "tool_result", "tool_use_id": name, "content": "ok"} for name in ("call_9", "call_gw0001x0")
    ]
    echo = [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    client.messages.create(model="m", max_tokens=9, messages=echo, tools=[BASH])
    hello, back, first, second = served.calls[1].turns
    assert hello == served.calls[0].turns[0]
    assert evolve(back, tool_calls=()) == evolve(turn, tool_calls=())
    assert [evolve(call, arguments="") for call in back.tool_calls] == [
        evolve(call, arguments="") for call in turn.tool_calls
    ]
    assert [json.loads(call.arguments) for call in back.tool_calls[:2]] == [
        json.loads(call.arguments) for call in turn.tool_calls[:2]
    ]
    assert back.tool_calls[2] == bad
    assert first == Turn(role="tool", content=("ok",), tool_call_id="call_9")
    assert second.tool_call_id == "call_gw0001x0"


def test_claude_code_request() -> None:
    body = {
        "model": "policy",
        "max_tokens": 32000,
        "stream": True,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "7037"})},
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.d49;"},
            {"type": "text", "text": "You are a Claude agent…", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>…"},
                    {"type": "text", "text": "Run echo hi…", "cache_control": {"type": "ephemeral"}},
                ],
            },
            {"role": "system", "content": "Available agent types for the Agent tool: …"},
            {
                "role": "assistant",
                "content": [
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "thinking", "thinking": "hm\n", "signature": "c2ln"},
                    {"type": "text", "text": "  Let me "},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "echo hi"}},
                    {
                        "type": "tool_use",
                        "id": "toolu_2",
                        "name": "Bash",
                        "input": {"__unparsedToolInput": {"a": 1}},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"tool_use_id": "toolu_1", "type": "tool_result", "content": "hi", "is_error": False},
                    {
                        "tool_use_id": "toolu_2",
                        "type": "tool_result",
                        "content": "bad input",
                        "is_error": True,
                    },
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [
            BASH,
            {**BASH, "name": "Edit", "type": "custom"},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
    }
    call = Messages().read(body, {"x-claude-code-agent-id": "agent-7", "x-stainless-retry-count": "0"})
    assert [turn.role for turn in call.turns] == [
        "system",
        "user",
        "system",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    assert call.turns[1].content == ("<system-reminder>…", "Run echo hi…")
    assert (call.turns[3].reasoning, call.turns[3].text) == ("hm\n", "  Let me ")
    assert [call.text for call in call.turns[4:]] == ["hi", "Error: bad input", "go on"]
    assert [tool.name for tool in call.tools] == ["Bash", "Edit"]
    assert (call.max_tokens, call.stream, call.hints.conversation) == (32000, True, "agent-7")
    assert call.ignored == ("output_config.effort", "tools.web_search_20250305")


def test_claude_codes_title_call() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    call = read(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert json.loads(call.json_schema) == schema
    assert read(output_format={"type": "json_schema", "schema": schema}).json_schema == call.json_schema


def test_deferred_tools_are_shown_once_the_history_names_them() -> None:
    tools = [BASH, LATER]
    assert [tool.name for tool in read(tools=tools).tools] == ["Bash"]
    loaded = read(tools=tools, messages=result([{"type": "tool_reference", "tool_name": "Later"}]))
    assert [tool.name for tool in loaded.tools] == ["Bash", "Later"]
    assert "Later" in loaded.turns[0].text
    hosted = {"type": "tool_search_tool_bm25_20251119", "name": "search"}
    assert [tool.name for tool in read(tools=[*tools, hosted]).tools] == ["Bash", "Later"]


def test_tools_come_and_go_in_mid_conversation() -> None:
    def change(kind: str, tool: dict[str, Any]) -> dict[str, Any]:
        return {"role": "system", "content": [{"type": kind, "tool": tool}]}

    new = change("tool_addition", {"type": "tool_definition", "definition": {**BASH, "name": "New"}})
    later = change("tool_addition", {"type": "tool_reference", "name": "Later"})
    gone = change("tool_removal", {"type": "tool_reference", "name": "Bash"})
    call = read(tools=[BASH, LATER], messages=[*HELLO, new, later, gone])
    assert [tool.name for tool in call.tools] == ["Later", "New"]
    assert len(call.turns) == 1


def test_results_with_blocks_and_images() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    document = {"type": "document", "title": "T", "source": {"type": "text", "data": "body"}}
    [turn] = read(
        messages=result([{"type": "text", "text": "see"}, {"type": "image", "source": source}, document])
    ).turns
    assert turn.content == ("see", Image(url="data:image/png;base64,AAAA"), "T\n", "body")
    assert read(messages=result(None, is_error=True)).turns[0].text == "Error: "
    assert read(messages=result("<tool_use_error>no", is_error=True)).turns[0].text == "<tool_use_error>no"


def test_tool_choice_in_all_its_forms() -> None:
    tools = [BASH]
    assert read(tools=tools, tool_choice={"type": "auto"}).tool_choice == "auto"
    assert read(tools=tools, tool_choice={"type": "none"}).tool_choice == "none"
    call = read(tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert (call.tool_choice, call.parallel_tool_calls) == ("required", False)
    assert read(tools=tools, tool_choice={"type": "tool", "name": "Bash"}).tool_choice.name == "Bash"
    assert read(stop_sequences=["a", "b"], temperature=1, top_k=3).ignored == ("temperature", "top_k")


def test_count_tokens_takes_any_history() -> None:
    body = {"model": "m", "messages": [*HELLO, {"role": "assistant", "content": "a"}], "tools": [BASH]}
    assert CountTokens().read(body, {}).max_tokens is None
    with pytest.raises(BadRequest, match="must not end with an assistant message"):
        Messages().read(body, {})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"compaction": {"type": "summarize"}}, "compaction"),
        ({"thread": {"id": "t"}}, "thread"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "messages.0.content.0.type"),
        ({"messages": result([{"type": "browser_state"}])}, "messages.0.content.0.content.0.type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "messages.0.content.0.tool_use_id",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
            "messages.0.content.0.source.type",
        ),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.type"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
        ({"tools": [{"name": "x", "input_schema": []}]}, "tools.0.input_schema"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"max_tokens": -1}, "max_tokens"),
    ],
)
def test_what_cannot_be_honoured_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(**body)
    assert caught.value.param == param


def test_errors_come_as_the_sdk_and_claude_code_know_them() -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        Served(problem=ContextOverflow(9000, 8192)).anthropic().messages.create(
            model="m", max_tokens=9, messages=HELLO
        )
    message = "prompt is too long: 9000 tokens > 8192 maximum"
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message},
    }
    late = Served(problem=BadRequest("closed", code="session_closed"), late=True)
    with pytest.raises(anthropic.APIStatusError, match="closed"):
        list(late.anthropic().messages.create(model="m", max_tokens=9, messages=HELLO, stream=True))
