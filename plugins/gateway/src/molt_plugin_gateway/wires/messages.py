"""Anthropic Messages: `POST /v1/messages` and `…/count_tokens`, as anthropic 2.14 and Claude Code send and read them.

Fields of a request that are in no list here and not read below change nothing in the answer (cache_control,
context_management, metadata, service_tier, speed, diagnostics, fallbacks, …), follow the model (thinking) or are
unknown; they are accepted. Tools with `defer_loading` are shown once a `tool_reference` in the history names them, or
at once where the search for them is a hosted tool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from molt_plugin_gateway.exchange import Answer, BadRequest, Call, ContextOverflow, Tool, Turn, Usage
from molt_plugin_gateway.wires.blocks import ToolChanges, read_turns, write_blocks
from molt_plugin_gateway.wires.content import read_parts
from molt_plugin_gateway.wires.frames import frame
from molt_plugin_gateway.wires.hints import read_hints
from molt_plugin_gateway.wires.node import Node, screen
from molt_plugin_gateway.wires.tools import Choices, find, function_tool, hosted_type, mode, unique

REFUSED = {
    "container": "there are no containers here",
    "mcp_servers": "MCP servers are reached by the agent, not from here",
    "compaction": "the agent compacts its own history",
    "thread": "nothing is stored here; send the whole history as messages",
}
FOLLOW_RUN = ("temperature", "top_p", "top_k")

_ERROR_TYPES = {"invalid_api_key": "authentication_error", "not_found": "not_found_error"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_NOTHING_YET = Usage(prompt_tokens=0, completion_tokens=0)


class Messages:
    """One request. Methods that stream are called in the order begin, keepalive …, events or error_event."""

    prefill = False
    """Whether the history may end with the assistant."""

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Call:
        root = Node(body)
        ignored = screen(root, refused=REFUSED, follow_run=FOLLOW_RUN)
        output = root["output_config"]
        if output["effort"].given:
            ignored += ("output_config.effort",)
        changes = ToolChanges()
        turns = read_turns(root["messages"], changes)
        if not turns:
            raise root["messages"].problem("at least one message is needed")
        if turns[-1].role == "assistant" and not self.prefill:
            raise root["messages"].problem(
                "must not end with an assistant message: beginnings of answers are not continued"
            )
        if root["system"].given:
            turns.insert(0, Turn(role="system", content=read_parts(root["system"])))
        tools, hosted = _read_tools(root["tools"], changes)
        choice, parallel = _read_choice(root["tool_choice"], tools)
        form = output["format"] if output["format"].given else root["output_format"]
        return Call(
            turns=tuple(turns),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=parallel,
            max_tokens=root["max_tokens"].count(),
            stop=root["stop_sequences"].texts(),
            json_schema=_read_format(form),
            stream=root["stream"].flag(),
            model=root["model"].text("policy"),
            ignored=ignored + hosted,
            hints=read_hints(headers, body),
        )

    def whole(self, answer: Answer, call: Call) -> dict[str, Any]:
        return {
            **_head(answer.id, answer.model, answer.usage),
            "content": write_blocks(answer.choices[0].turn),
            **_stop(answer),
        }

    def begin(self, answer_id: str, created_s: int, call: Call) -> Iterator[bytes]:
        """The true usage follows with `message_delta`."""
        yield _event("message_start", message=_head(answer_id, call.model, _NOTHING_YET))
        yield self.keepalive()

    def keepalive(self) -> bytes:
        return _event("ping")

    def events(self, answer: Answer, call: Call) -> Iterator[bytes]:
        for index, block in enumerate(write_blocks(answer.choices[0].turn)):
            stub, deltas = _pieces(block)
            yield _event("content_block_start", index=index, content_block=stub)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=_stop(answer), usage=_usage(answer.usage))
        yield _event("message_stop")

    def error(self, problem: BadRequest) -> dict[str, Any]:
        message = problem.message
        if isinstance(problem, ContextOverflow):  # Claude Code looks for this wording
            message = f"prompt is too long: {problem.num_tokens} tokens > {problem.max_length} maximum"
        kind = _ERROR_TYPES.get(problem.code or "", "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def error_event(self, problem: BadRequest) -> Iterator[bytes]:
        yield frame(self.error(problem), event="error")


class CountTokens(Messages):
    """The body of `count_tokens`: the same fields, any end."""

    prefill = True


def _read_tools(nodes: Node, changes: ToolChanges) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Tools that the model may see, and what to say of the hosted ones."""
    tools: list[tuple[Node, Tool]] = []
    hosted: list[str] = []
    for node in [*nodes.items(), *changes.defined]:
        if node["type"].value in (None, "custom"):
            tools.append((node, function_tool(node, "input_schema")))
        else:
            hosted.append(f"tools.{hosted_type(node)}")
    searched_here = not any("tool_search" in kind for kind in hosted)
    visible = [
        (node, tool)
        for node, tool in tools
        if changes.shown.get(tool.name, not (node["defer_loading"].flag() and searched_here))
    ]
    return unique(visible), tuple(hosted)


def _read_choice(choice: Node, tools: tuple[Tool, ...]) -> tuple[Choices, bool]:
    if not choice.given:
        return "auto", True
    parallel = not choice["disable_parallel_tool_use"].flag()
    kind = choice["type"].text()
    if kind == "tool":
        return find(tools, choice["name"]), parallel
    if kind not in _CHOICES:
        raise choice["type"].problem(f"{kind!r} is not known; auto, any, tool and none are")
    return mode(Node(_CHOICES[kind], choice.path), tools), parallel


def _read_format(form: Node) -> str | None:
    if not form.given:
        return None
    if form["type"].text() != "json_schema":
        raise form["type"].problem("only json_schema can be honoured")
    return form["schema"].json()


def _head(answer_id: str, model: str, usage: Usage) -> dict[str, Any]:
    return {
        "id": f"msg_{answer_id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage),
    }


def _stop(answer: Answer) -> dict[str, Any]:
    choice = answer.choices[0]
    by_text = choice.stop_text is not None and choice.finish_reason == "stop"
    reason = "stop_sequence" if by_text else _STOP_REASONS[choice.finish_reason]
    return {"stop_reason": reason, "stop_sequence": choice.stop_text if by_text else None}


def _usage(usage: Usage) -> dict[str, Any]:
    """This wire counts what came from the cache apart."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and what fills it."""
    match block["type"]:
        case "thinking":
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [thought, signature]
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case _:
            text = json.dumps(block["input"])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]


def _event(kind: str, **data: Any) -> bytes:
    return frame({"type": kind, **data}, event=kind)
