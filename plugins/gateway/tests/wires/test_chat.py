"""Chat Completions through the stock SDK, and requests as harnesses send them."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from attrs import evolve
from in_process import TURN, Served, choice, plain
from molt_plugin_gateway.exchange import (
    BadRequest,
    ContextOverflow,
    Image,
    TokenLogprob,
    Tool,
    ToolCall,
    Turn,
)
from molt_plugin_gateway.wires.chat import Chat
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

HELLO = [{"role": "user", "content": "hi"}]
BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
PATCH = {"type": "custom", "custom": {"name": "patch", "description": "Edit files."}}


def read(**body: Any) -> Any:
    return Chat().read({"model": "policy", "messages": HELLO, **body}, {})


def refused(**body: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        read(**body)
    return caught.value


def test_whole_answer_parses_and_holds_everything() -> None:
    served = Served()
    completion = served.openai().chat.completions.create(model="m", messages=HELLO, tools=[BASH])
    assert (completion.id, completion.created, completion.model) == ("chatcmpl-42", 1_700_000_000, "m")
    [one] = completion.choices
    assert (one.index, one.finish_reason, one.message.content) == (0, "tool_calls", TURN.text)
    assert one.message.reasoning_content == TURN.reasoning
    assert [call.function.arguments for call in one.message.tool_calls] == [
        call.arguments for call in TURN.tool_calls
    ]
    assert completion.usage.total_tokens == 120
    assert completion.usage.prompt_tokens_details.cached_tokens == 60
    assert completion.usage.completion_tokens_details.reasoning_tokens == 5


def test_streamed_answer_is_the_whole_one() -> None:
    served = Served()
    client = served.openai()
    whole = client.chat.completions.create(model="m", messages=HELLO, tools=[BASH])
    options = {"include_usage": True}
    with client.chat.completions.stream(
        model="m", messages=HELLO, tools=[BASH], stream_options=options
    ) as stream:
        streamed = stream.get_final_completion()
    for event in served.events():
        ChatCompletionChunk.model_validate(event, strict=True)
    assert served.sent.endswith(b"data: [DONE]\n\n")
    assert streamed.usage == whole.usage
    assert streamed.choices[0].finish_reason == "tool_calls"
    message = plain(streamed.choices[0].message)
    for call in message["tool_calls"]:
        call.pop("index")
        call["function"].pop("parsed_arguments", None)
    assert message == plain(whole.choices[0].message)


def test_usage_is_streamed_only_where_asked_for() -> None:
    served = Served()
    chunks = list(served.openai().chat.completions.create(model="m", messages=HELLO, stream=True))
    assert all(chunk.usage is None and chunk.choices[0].index == 0 for chunk in chunks)


async def test_async_client_reads_both_forms() -> None:
    client = Served().async_openai()
    whole = await client.chat.completions.create(model="m", messages=HELLO)
    stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
    texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(texts) == whole.choices[0].message.content == TURN.text


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_with_log_probabilities(stream: bool) -> None:
    logprobs = (
        TokenLogprob(token="ä", logprob=-0.5),
        TokenLogprob(token="<|im_end|>", logprob=float("-inf")),
    )
    turns = [Turn(role="assistant", content=(text,)) for text in "ab"]
    served = Served(*(choice(turn, logprobs=logprobs) for turn in turns))
    create = served.openai().chat.completions
    if stream:
        with create.stream(model="m", messages=HELLO, n=2, logprobs=True) as events:
            completion = events.get_final_completion()
    else:
        completion = create.create(model="m", messages=HELLO, n=2, logprobs=True)
    assert served.calls[0].n == 2
    assert [one.message.content for one in completion.choices] == ["a", "b"]
    for one in completion.choices:
        first, second = one.logprobs.content
        assert (first.token, first.logprob, first.bytes) == ("ä", -0.5, list("ä".encode()))
        assert second.logprob == -9999.0


def test_echoed_message_reads_back_as_the_turn_that_was_sent() -> None:
    custom = ToolCall(id="call_9", name="patch", arguments="*** Begin\n é", custom=True)
    turn = evolve(TURN, tool_calls=(*TURN.tool_calls, custom))
    served = Served(choice(turn))
    client = served.openai()
    completion = client.chat.completions.create(model="m", messages=HELLO, tools=[BASH, PATCH])
    results = [
        {"role": "tool", "tool_call_id": "call_9", "content": [{"type": "text", "text": "done"}]},
        {"role": "tool", "tool_call_id": "call_gw0001x0", "content": "hi"},
    ]
    echo = [*HELLO, plain(completion.choices[0].message), *results]
    client.chat.completions.create(model="m", messages=echo, tools=[BASH, PATCH])
    assert served.calls[1].turns == (
        *served.calls[0].turns,
        turn,
        Turn(role="tool", content=("done",), tool_call_id="call_9"),
        Turn(role="tool", content=("hi",), tool_call_id="call_gw0001x0"),
    )


def test_custom_call_is_streamed_as_such() -> None:
    call = ToolCall(id="call_9", name="patch", arguments="*** Begin", custom=True)
    served = Served(choice(Turn(role="assistant", tool_calls=(call,))))
    client = served.openai(strict=False)  # the SDK's types know only functions here
    list(client.chat.completions.create(model="m", messages=HELLO, tools=[PATCH], stream=True))
    deltas = [event["choices"][0]["delta"] for event in served.events()]
    [sent] = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    wanted = {"id": "call_9", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    assert sent == [{"index": 0, **wanted}]


def test_empty_answer_is_an_empty_text() -> None:
    served = Served(choice(Turn(role="assistant")))
    completion = served.openai().chat.completions.create(model="m", messages=HELLO)
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("", "stop")


def test_opencode_turn_two() -> None:
    call = read(
        max_tokens=4096,
        stream=True,
        stream_options={"include_usage": True},
        tool_choice="auto",
        tools=[BASH],
        messages=[
            {"role": "system", "content": "You are opencode…"},
            {"role": "user", "content": '"Run echo hi…"'},
            {
                "role": "assistant",
                "content": "  Let me  run it — ok.\n\n",
                "reasoning_content": "I should run echo.\n ",
                "tool_calls": [
                    {"id": "call_1", "function": {"name": "bash", "arguments": '{"command":"echo hi"}'}}
                ],
            },
        ],
    )
    assert (call.max_tokens, call.stream, call.stream_usage) == (4096, True, True)
    assert [turn.role for turn in call.turns] == ["system", "user", "assistant"]
    assert call.turns[2] == Turn(
        role="assistant",
        content=("  Let me  run it — ok.\n\n",),
        reasoning="I should run echo.\n ",
        tool_calls=(ToolCall(id="call_1", name="bash", arguments='{"command":"echo hi"}'),),
    )


def test_smolagents_request() -> None:
    call = read(
        messages=[{"role": "user", "content": [{"type": "text", "text": "Task"}]}],
        tools=[BASH],
        tool_choice="required",
        stop=["Observation:", "Calling tools:"],
    )
    assert (call.tool_choice, call.stop) == ("required", ("Observation:", "Calling tools:"))
    assert call.turns == (Turn(role="user", content=("Task",)),)


def test_verifiers_request_asks_for_one_choice_with_log_probabilities() -> None:
    call = read(n=1, logprobs=True, return_token_ids=True, extra_body={"x": 1})
    assert (call.n, call.logprobs, call.ignored) == (1, True, ())


def test_parsed_output_follows_the_schema_that_was_sent() -> None:
    class Title(BaseModel):
        title: str

    served = Served(choice(Turn(role="assistant", content=('{"title": "Say hi"}',))))
    client = served.openai()
    completion = client.chat.completions.parse(model="m", messages=HELLO, response_format=Title)
    response = client.responses.parse(model="m", input="hi", text_format=Title)
    assert completion.choices[0].message.parsed == response.output_parsed == Title(title="Say hi")
    for call in served.calls:
        assert json.loads(call.json_schema)["required"] == ["title"]


def test_roles_blocks_images_and_nulls() -> None:
    url = "data:image/png;base64,AAAA"
    call = read(
        messages=[
            {
                "role": "developer",
                "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief"}],
            },
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}], "name": "x"},
            {"role": "assistant", "content": None, "refusal": "No.", "reasoning": "hm", "tool_calls": None},
            {"role": "system", "content": "late"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "user", "content": ""},
        ]
    )
    assert call.turns == (
        Turn(role="system", content=("Be ", "brief")),
        Turn(role="user", content=(Image(url=url),)),
        Turn(role="assistant", content=("No.",), reasoning="hm"),
        Turn(role="system", content=("late",)),
        Turn(role="assistant", content=("No.",)),
        Turn(role="user"),
    )


def test_half_an_emoji_becomes_a_replacement_character() -> None:
    call = read(messages=[{"role": "user", "content": json.loads('"cut \\ud83d, whole \\ud83d\\ude00"')}])
    assert call.turns[0].text == "cut \ufffd, whole 😀"


def test_max_completion_tokens_come_before_max_tokens() -> None:
    assert read(max_tokens=5, max_completion_tokens=7).max_tokens == 7
    assert read(max_tokens=5).max_tokens == 5


def test_formats_become_a_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    assert json.loads(read(response_format=form).json_schema) == schema
    assert read(response_format={"type": "json_object"}).json_schema == "{}"
    assert read(response_format={"type": "text"}).json_schema is None
    assert refused(response_format={"type": "grammar"}).param == "response_format.type"


def test_tool_choice_in_all_its_forms() -> None:
    tools = [BASH, PATCH]
    assert read(tools=tools, tool_choice="none").tool_choice == "none"
    assert read(tools=tools).tool_choice == "auto"
    named = read(tools=tools, tool_choice={"type": "function", "function": {"name": "bash"}})
    assert named.tool_choice == Tool(name="bash", parameters={"type": "object"})
    custom = read(tools=tools, tool_choice={"type": "custom", "custom": {"name": "patch"}})
    assert isinstance(custom.tool_choice, Tool)
    assert custom.tool_choice.custom
    one = {"type": "function", "function": {"name": "bash"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [one]}}
    call = read(tools=tools, tool_choice=allowed, parallel_tool_calls=False)
    assert ([tool.name for tool in call.tools], call.tool_choice) == (["bash"], "required")
    assert not call.parallel_tool_calls
    for wrong in ["required", {"type": "function", "function": {"name": "bash"}}]:
        assert refused(tool_choice=wrong).param.startswith("tool_choice")
    assert refused(tools=tools, tool_choice="any").param == "tool_choice"


def test_hosted_tools_are_left_out_and_named() -> None:
    call = read(tools=[BASH, {"type": "web_search_preview"}], temperature=0.2, top_p=None, seed=1)
    assert [tool.name for tool in call.tools] == ["bash"]
    assert call.ignored == ("temperature", "seed", "tools.web_search_preview")


def test_grammar_of_a_custom_tool_is_told_in_its_description() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}
    call = read(tools=[{"type": "custom", "custom": {"name": "patch", "format": grammar}}])
    assert "lark grammar:\nstart: WORD" in call.tools[0].description


def test_equal_tools_count_once_and_different_ones_of_a_name_are_refused() -> None:
    other = {"type": "function", "function": {"name": "bash", "description": "other"}}
    assert len(read(tools=[BASH, BASH]).tools) == 1
    assert refused(tools=[BASH, other]).param == "tools.1"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"modalities": ["text", "audio"]}, "modalities.1"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "tool", "content": "hi"}]}, "messages.0.tool_call_id"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        (
            {"messages": [*HELLO, {"role": "user", "content": [{"type": "file"}]}]},
            "messages.1.content.0.type",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": "file:///etc/x"}]}
                ]
            },
            "messages.0.content.0.image_url",
        ),
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages.0.audio"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
        ({"tools": [{"type": "local_shell"}]}, "tools.0.type"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"n": 1.5}, "n"),
        ({"stop": [""]}, "stop.0"),
        ({"stream": "yes"}, "stream"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_what_cannot_be_honoured_is_named(body: dict[str, Any], param: str) -> None:
    problem = refused(**body)
    assert problem.param == param
    assert param in problem.message


def test_errors_come_as_the_sdk_knows_them() -> None:
    served = Served(problem=ContextOverflow(9000, 8192))
    with pytest.raises(openai.BadRequestError) as caught:
        served.openai().chat.completions.create(model="m", messages=HELLO)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    assert "maximum context length is 8192 tokens" in caught.value.message


def test_an_error_after_the_headers_ends_the_stream() -> None:
    served = Served(problem=BadRequest("too much", code="limit_exceeded"), late=True)
    with pytest.raises(openai.APIError, match="too much"):
        list(served.openai().chat.completions.create(model="m", messages=HELLO, stream=True))
