"""OpenAI Responses: `POST /v1/responses`, as openai 3.57 and Codex send and read it. Nothing is stored.

Fields of a request that are in no list here and not read below change nothing in the answer (metadata, store,
truncation, prompt_cache_…, client_metadata, context_management, max_tool_calls, which counts hosted tools only, …) or
are unknown; they are accepted. Tools with `defer_loading` are shown at once: the search for them is a hosted tool.

`response.output_item.done` comes only right before the end: Codex commits an item when it sees it, also from a stream
that breaks off afterwards. Reasoning goes out as text and once more in `encrypted_content`, which clients return.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from molt_plugin_gateway.exchange import Answer, BadRequest, Call, ContextOverflow, Turn, Usage
from molt_plugin_gateway.wires.content import read_parts
from molt_plugin_gateway.wires.frames import frame
from molt_plugin_gateway.wires.hints import read_hints
from molt_plugin_gateway.wires.items import read_turns, write_items
from molt_plugin_gateway.wires.node import Node, screen
from molt_plugin_gateway.wires.openai import openai_choice, openai_error, openai_format, openai_tools

_STATELESS = "nothing is stored here; send the whole history as input"
REFUSED = {
    "background": "answers are given at once",
    "conversation": _STATELESS,
    "previous_response_id": _STATELESS,
    "prompt": "stored prompts are not known here; send instructions",
    "top_logprobs": "only the log-probability of the sampled token is kept; use 0",
}
FOLLOW_RUN = ("temperature", "top_p", "moderation")


class Responses:
    """One request. Methods that stream are called in the order begin, keepalive …, events or error_event."""

    def __init__(self) -> None:
        self._sequence_number = 0
        self._head: dict[str, Any] = {}

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Call:
        root = Node(body)
        ignored = screen(root, refused=REFUSED, follow_run=FOLLOW_RUN)
        if root["reasoning"]["effort"].given:
            ignored += ("reasoning.effort",)
        turns = read_turns(root["input"])
        if not turns:
            raise root["input"].problem("at least one message is needed")
        if root["instructions"].given:
            turns.insert(0, Turn(role="system", content=read_parts(root["instructions"])))
        tools, hosted = openai_tools(_tool_lists(root))
        choice, tools = openai_choice(root["tool_choice"], tools)
        include = {one.text() for one in root["include"].items()}
        return Call(
            turns=tuple(turns),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=root["parallel_tool_calls"].flag(True),
            max_tokens=root["max_output_tokens"].count(),
            json_schema=openai_format(root["text"]["format"]),
            logprobs="message.output_text.logprobs" in include,
            stream=root["stream"].flag(),
            model=root["model"].text("policy"),
            ignored=ignored + hosted,
            hints=read_hints(headers, body),
        )

    def whole(self, answer: Answer, call: Call) -> dict[str, Any]:
        choice = answer.choices[0]
        status = "incomplete" if choice.finish_reason == "length" else "completed"
        logprobs = choice.logprobs if call.logprobs else ()
        return {
            **_response(answer.id, answer.created_s, call, status),
            "model": answer.model,
            "output": write_items(choice.turn, answer.id, status=status, logprobs=logprobs),
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "usage": _usage(answer.usage),
        }

    def begin(self, answer_id: str, created_s: int, call: Call) -> Iterator[bytes]:
        self._head = _response(answer_id, created_s, call, "in_progress")
        yield self._event("response.created", response=self._head)
        yield self.keepalive()

    def keepalive(self) -> bytes:
        return self._event("response.in_progress", response=self._head)

    def events(self, answer: Answer, call: Call) -> Iterator[bytes]:
        response = self.whole(answer, call)
        for index, item in enumerate(response["output"]):
            yield from self._item(index, item)
        for index, item in enumerate(response["output"]):
            yield self._event("response.output_item.done", output_index=index, item=item)
        yield self._event(f"response.{response['status']}", response=response)

    def error(self, problem: BadRequest) -> dict[str, Any]:
        body = openai_error(problem)
        if isinstance(problem, ContextOverflow):
            body["error"]["param"] = "input"
        return body

    def error_event(self, problem: BadRequest) -> Iterator[bytes]:
        """Codex repeats a failed response five times, except with one of these two codes."""
        code = problem.code if problem.code == "context_length_exceeded" else "invalid_prompt"
        failed = {**self._head, "status": "failed", "error": {"code": code, "message": problem.message}}
        yield self._event("response.failed", response=failed)

    def _item(self, index: int, item: dict[str, Any]) -> Iterator[bytes]:
        """An item up to, without, its `done`. Each text comes as one delta: it is there as a whole."""
        kind = item["type"]
        place = {"item_id": item["id"], "output_index": index}
        field = {"function_call": "arguments", "custom_tool_call": "input"}.get(kind, "content")
        stub = {**item, "status": "in_progress", field: [] if field == "content" else ""}
        stub.pop("encrypted_content", None)
        yield self._event("response.output_item.added", output_index=index, item=stub)
        if field == "content":
            part = item["content"][0]
            place |= {"content_index": 0}
            more = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
            yield self._event(
                "response.content_part.added",
                **place,
                part={**part, "text": ""} | {name: [] for name in more},
            )
            name = f"response.{part['type']}"
            yield self._event(f"{name}.delta", **place, delta=part["text"], **more)
            yield self._event(f"{name}.done", **place, text=part["text"], **more)
            yield self._event("response.content_part.done", **place, part=part)
        else:
            name = f"response.{kind}_{field}"
            yield self._event(f"{name}.delta", **place, delta=item[field])
            yield self._event(f"{name}.done", **place, **{field: item[field], "name": item["name"]})

    def _event(self, kind: str, **data: Any) -> bytes:
        number = self._sequence_number
        self._sequence_number += 1
        return frame({"type": kind, "sequence_number": number, **data}, event=kind)


def _tool_lists(root: Node) -> list[Node]:
    """Those of the request, and of items that bring some."""
    items = root["input"].items() if isinstance(root["input"].value, list) else []
    return [root["tools"], *(item["tools"] for item in items)]


def _response(answer_id: str, created_s: int, call: Call, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{answer_id}",
        "object": "response",
        "created_at": created_s,
        "status": status,
        "model": call.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": call.parallel_tool_calls,
        "tool_choice": call.tool_choice if isinstance(call.tool_choice, str) else "required",
        "tools": [],
        "usage": None,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
