"""OpenAI Chat Completions: `POST /v1/chat/completions`, as openai 3.57 sends and reads it.

Fields of a request that are in no list here and not read below change nothing in the answer (metadata, store, user,
service_tier, prompt_cache_…, safety_identifier, prediction, …) or are unknown; they are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from molt_plugin_gateway.exchange import Answer, BadRequest, Call, Choice, ToolCall, Turn, Usage
from molt_plugin_gateway.wires.content import read_parts, read_turn
from molt_plugin_gateway.wires.frames import DONE, frame
from molt_plugin_gateway.wires.hints import read_hints
from molt_plugin_gateway.wires.node import Node, screen
from molt_plugin_gateway.wires.openai import (
    openai_choice,
    openai_error,
    openai_format,
    openai_logprobs,
    openai_tools,
)

REFUSED = {
    "audio": "the model answers with text only",
    "functions": "is the old form; use tools",
    "function_call": "is the old form; use tool_choice",
    "logit_bias": "would change what is sampled; only the run may do that",
    "top_logprobs": "only the log-probability of the sampled token is kept; use 0",
}
FOLLOW_RUN = (
    "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "reasoning_effort", "verbosity", "chat_template_kwargs", "web_search_options", "moderation",
)  # fmt: skip


class Chat:
    """One request. Methods that stream are called in the order begin, keepalive …, events or error_event."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Call:
        root = Node(body)
        ignored = screen(root, refused=REFUSED, follow_run=FOLLOW_RUN)
        for modality in root["modalities"].items():
            if modality.text() != "text":
                raise modality.problem("the model answers with text only")
        turns = tuple(_read_message(message) for message in root["messages"].items())
        if not turns:
            raise root["messages"].problem("at least one message is needed")
        tools, hosted = openai_tools([root["tools"]])
        choice, tools = openai_choice(root["tool_choice"], tools)
        longest = root["max_completion_tokens"].count() or root["max_tokens"].count()
        return Call(
            turns=turns,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=root["parallel_tool_calls"].flag(True),
            max_tokens=longest,
            stop=root["stop"].texts(),
            n=root["n"].count() or 1,
            json_schema=openai_format(root["response_format"]),
            logprobs=root["logprobs"].flag(),
            stream=root["stream"].flag(),
            stream_usage=root["stream_options"]["include_usage"].flag(),
            model=root["model"].text("policy"),
            ignored=ignored + hosted,
            hints=read_hints(headers, body),
        )

    def whole(self, answer: Answer, call: Call) -> dict[str, Any]:
        return {
            **_head(answer.id, answer.created_s, answer.model, "chat.completion"),
            "choices": [
                {
                    "index": index,
                    "message": _message(choice.turn),
                    "finish_reason": choice.finish_reason,
                    "logprobs": {"content": openai_logprobs(choice.logprobs)} if call.logprobs else None,
                }
                for index, choice in enumerate(answer.choices)
            ],
            "usage": _usage(answer.usage),
        }

    def begin(self, answer_id: str, created_s: int, call: Call) -> Iterator[bytes]:
        self._head = _head(answer_id, created_s, call.model, "chat.completion.chunk")
        for index in range(call.n):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def keepalive(self) -> bytes:
        return self._chunk(0, {"content": ""})

    def events(self, answer: Answer, call: Call) -> Iterator[bytes]:
        for index, choice in enumerate(answer.choices):
            yield from self._choice(index, choice, call)
        if call.stream_usage:
            yield frame({**self._head, "choices": [], "usage": _usage(answer.usage)})
        yield DONE

    def error(self, problem: BadRequest) -> dict[str, Any]:
        return openai_error(problem)

    def error_event(self, problem: BadRequest) -> Iterator[bytes]:
        yield frame(openai_error(problem))
        yield DONE

    def _choice(self, index: int, choice: Choice, call: Call) -> Iterator[bytes]:
        turn = choice.turn
        if turn.reasoning is not None:
            yield self._chunk(index, {"reasoning_content": turn.reasoning})
        if turn.text:
            yield self._chunk(index, {"content": turn.text})
        for position, tool_call in enumerate(turn.tool_calls):
            yield self._chunk(index, {"tool_calls": [{"index": position, **_tool_call(tool_call)}]})
        logprobs = {"content": openai_logprobs(choice.logprobs)} if call.logprobs else None
        yield self._chunk(index, {}, finish_reason=choice.finish_reason, logprobs=logprobs)

    def _chunk(self, index: int, delta: dict[str, Any], **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None, **more}
        return frame({**self._head, "choices": [choice]})


def _read_message(message: Node) -> Turn:
    content = message["content"]
    match message["role"].value:
        case "tool":
            return Turn(role="tool", content=read_parts(content), tool_call_id=message["tool_call_id"].name())
        case "assistant":
            for field in ("audio", "function_call"):
                if message[field].given:
                    raise message[field].problem("is not kept here; send text and tool_calls")
            spoken = message["refusal"] if not content.given else content
            thought = message["reasoning_content" if message["reasoning_content"].given else "reasoning"]
            return Turn(
                role="assistant",
                content=read_parts(spoken),
                reasoning=thought.text() if thought.given else None,
                tool_calls=tuple(_read_call(one) for one in message["tool_calls"].items()),
            )
        case _:
            return read_turn(message["role"], content)


def _read_call(call: Node) -> ToolCall:
    custom = call["type"].text("function") == "custom"
    body = call["custom" if custom else "function"]
    arguments = body["input"].text() if custom else body["arguments"].text("{}")
    return ToolCall(id=call["id"].name(), name=body["name"].name(), arguments=arguments, custom=custom)


def _head(answer_id: str, created_s: int, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer_id}", "object": kind, "created": created_s, "model": model}


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text, "refusal": None}
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["content"] = turn.text or None
        message["tool_calls"] = [_tool_call(call) for call in turn.tool_calls]
    return message


def _tool_call(call: ToolCall) -> dict[str, Any]:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
