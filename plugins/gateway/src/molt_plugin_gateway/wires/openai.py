"""What Chat Completions and Responses have in common: the choice of tools, formats, errors, log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from molt_plugin_gateway.exchange import BadRequest, TokenLogprob, Tool
from molt_plugin_gateway.wires.node import Node
from molt_plugin_gateway.wires.tools import (
    Choices,
    custom_tool,
    find,
    function_tool,
    hosted_type,
    mode,
    unique,
)


def openai_tools(lists: Iterable[Node]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Tools, whose definitions are nested or flat, and what to say of the hosted ones."""
    tools: list[tuple[Node, Tool]] = []
    hosted: list[str] = []

    def read(node: Node, namespace: str = "") -> None:
        match kind := node["type"].value:
            case "function" | "custom":
                body = node.inside(kind)
                if kind == "custom":
                    tools.append((node, custom_tool(body, namespace=namespace)))
                else:
                    tools.append((node, function_tool(body, "parameters", namespace=namespace)))
            case "namespace" if not namespace:
                for inner in node["tools"].items():
                    read(inner, node["name"].name())
            case _:
                hosted.append(f"tools.{hosted_type(node)}")

    for one in lists:
        for node in one.items():
            read(node)
    return unique(tools), tuple(hosted)


def openai_choice(choice: Node, tools: tuple[Tool, ...]) -> tuple[Choices, tuple[Tool, ...]]:
    """`tool_choice` of both OpenAI wires, nested or flat -> the choice, and the tools that stay.

    `allowed_tools` leaves only these: what is not shown is not called.
    """
    if not choice.given or isinstance(choice.value, str):
        return mode(choice, tools), tools
    match kind := choice["type"].text():
        case "function" | "custom":
            return find(tools, choice.inside(kind)["name"]), tools
        case "allowed_tools":
            allowed = choice.inside(kind)
            stay: list[Tool] = []
            for item in allowed["tools"].items():
                if item["type"].text("function") in ("function", "custom"):
                    stay.append(find(tools, item.inside("function")["name"]))
                else:
                    hosted_type(item)
            kept = tuple(tool for tool in tools if tool in stay)
            return mode(allowed["mode"], kept), kept
        case _:
            raise choice["type"].problem(f"a choice of type {kind!r} can't be honoured")


def openai_format(form: Node) -> str | None:
    """`response_format` of Chat Completions, `text.format` of Responses, as `Call.json_schema`."""
    if not form.given:
        return None
    match kind := form["type"].text():
        case "text":
            return None
        case "json_object":
            return "{}"
        case "json_schema":
            return form.inside(kind)["schema"].json()
        case _:
            raise form["type"].problem(f"format {kind!r} can't be honoured")


def openai_error(problem: BadRequest) -> dict[str, Any]:
    return {
        "error": {
            "message": problem.message,
            "type": "invalid_request_error",
            "param": problem.param,
            "code": problem.code,
        }
    }


def openai_logprobs(logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    return [
        {
            "token": one.token,
            "logprob": max(one.logprob, -9999.0),  # JSON has no -inf
            "bytes": list(one.token.encode("utf-8", "replace")),
            "top_logprobs": [],
        }
        for one in logprobs
    ]
