"""One question to each wire by its stock SDK, sync or async, streamed or not, and the answer in one form."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Sequence
from typing import Any

import anthropic
import openai
from attrs import frozen
from molt_plugin_gateway.session import GatewaySession
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent

PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
Messages = list[dict[str, Any]]


@frozen
class Heard:
    text: str
    calls: tuple[tuple[str, str, Any], ...]
    """(id, name, arguments)."""
    reason: str
    prompt_tokens: int
    completion_tokens: int
    history: Messages
    """The conversation with this answer, as the SDK's users append it."""


@frozen
class Mode:
    wire: str
    stream: bool
    sync: bool

    def __str__(self) -> str:
        return "-".join([self.wire, "stream" if self.stream else "whole", "sync" if self.sync else "async"])


MODES = [
    Mode(wire, stream, sync)
    for wire in ("chat", "responses", "messages")
    for stream in (False, True)
    for sync in (False, True)
]


async def ask(
    session: GatewaySession, mode: Mode, messages: Messages, *, tools: Sequence[str] = (), **more: Any
) -> Heard:
    match mode.wire:
        case "chat":
            return await _chat(session, mode, messages, tools, more)
        case "responses":
            return await _responses(session, mode, messages, tools, more)
        case _:
            return await _messages(session, mode, messages, tools, more)


def tool_result(mode: Mode, call_id: str, text: str) -> dict[str, Any]:
    match mode.wire:
        case "chat":
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case "responses":
            return {"type": "function_call_output", "call_id": call_id, "output": text}
        case _:
            block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            return {"role": "user", "content": [block]}


def openai_client(session: GatewaySession, *, sync: bool = False, **more: Any) -> Any:
    return (openai.OpenAI if sync else openai.AsyncOpenAI)(
        base_url=session.base_url, api_key=session.api_key, **more
    )


def anthropic_client(session: GatewaySession, *, sync: bool = False, **more: Any) -> Any:
    return (anthropic.Anthropic if sync else anthropic.AsyncAnthropic)(
        base_url=session.anthropic_base_url, api_key=session.api_key, **more
    )


async def _send(client: Any, resource: str, mode: Mode, body: dict[str, Any]) -> Any:
    """The complete answer; streamed ones are put together by the SDK from the events."""

    def at(owner: Any) -> Any:
        for name in resource.split("."):
            owner = getattr(owner, name)
        return owner

    def blocking() -> Any:
        with client:
            if not mode.stream:
                return at(client).create(**body)
            with at(client).stream(**body) as stream:
                return _whole(stream, list(stream)[-1])

    try:
        if mode.sync:
            return await asyncio.to_thread(blocking)
        async with client:
            if not mode.stream:
                return await at(client).create(**body)
            async with at(client).stream(**body) as stream:
                made = _whole(stream, [event async for event in stream][-1])
                return await made if inspect.isawaitable(made) else made
    # how this SDK hands out a streamed reply that a limit has cut
    except openai.LengthFinishReasonError as cut:
        return cut.completion


def _whole(stream: Any, last: Any) -> Any:
    if isinstance(last, ResponseCompletedEvent | ResponseIncompleteEvent):
        return last.response
    return (
        stream.get_final_message() if hasattr(stream, "get_final_message") else stream.get_final_completion()
    )


async def _chat(
    session: GatewaySession, mode: Mode, messages: Messages, tools: Sequence[str], more: Any
) -> Heard:
    functions = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in tools]
    body = {"model": session.model, "messages": messages, **({"tools": functions} if tools else {}), **more}
    if mode.stream:
        body["stream_options"] = {"include_usage": True}
    client = openai_client(session, sync=mode.sync)
    said = await _send(client, "chat.completions", mode, body)
    (choice,) = said.choices
    message = choice.message
    calls = tuple(
        (call.id, call.function.name, json.loads(call.function.arguments))
        for call in message.tool_calls or ()
    )
    return Heard(
        text=message.content or "",
        calls=calls,
        reason=choice.finish_reason,
        prompt_tokens=said.usage.prompt_tokens,
        completion_tokens=said.usage.completion_tokens,
        history=[*messages, message.to_dict()],
    )


async def _responses(
    session: GatewaySession, mode: Mode, messages: Messages, tools: Sequence[str], more: Any
) -> Heard:
    functions = [
        {"type": "function", "name": name, "parameters": PARAMETERS, "strict": False} for name in tools
    ]
    body = {"model": session.model, "input": messages, **({"tools": functions} if tools else {}), **more}
    client = openai_client(session, sync=mode.sync)
    said = await _send(client, "responses", mode, body)
    calls = tuple(
        (item.call_id, item.name, json.loads(item.arguments))
        for item in said.output
        if item.type == "function_call"
    )
    return Heard(
        text=said.output_text,
        calls=calls,
        reason=said.status,
        prompt_tokens=said.usage.input_tokens,
        completion_tokens=said.usage.output_tokens,
        history=[*messages, *(item.to_dict() for item in said.output)],
    )


async def _messages(
    session: GatewaySession, mode: Mode, messages: Messages, tools: Sequence[str], more: Any
) -> Heard:
    defined = [{"name": name, "input_schema": PARAMETERS} for name in tools]
    body = {
        "model": session.model,
        "messages": messages,
        "max_tokens": 4096,
        **({"tools": defined} if tools else {}),
        **more,
    }
    client = anthropic_client(session, sync=mode.sync)
    said = await _send(client, "messages", mode, body)
    calls = tuple((block.id, block.name, block.input) for block in said.content if block.type == "tool_use")
    content = [block.to_dict() for block in said.content]
    return Heard(
        text="".join(block.text for block in said.content if block.type == "text"),
        calls=calls,
        reason=said.stop_reason,
        prompt_tokens=said.usage.input_tokens
        + (said.usage.cache_read_input_tokens or 0)
        + (said.usage.cache_creation_input_tokens or 0),
        completion_tokens=said.usage.output_tokens,
        history=[*messages, {"role": "assistant", "content": content}],
    )
