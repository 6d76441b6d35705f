"""Tools of all wires: definitions, the choice among them, and names inside namespaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from attrs import evolve

from molt_plugin_gateway.exchange import Tool, ToolCall
from molt_plugin_gateway.wires.node import Node

CUSTOM_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""How a template shows a custom tool, whose input is plain text."""

HOSTED = re.compile(
    "web_search|web_fetch|file_search|code_interpreter|code_execution|image_generation|mcp|tool_search"
    "|programmatic_tool_calling|advisor"
)
"""Beginnings of the types of tools that a provider runs. They are left out, with one warning a session: the agent
can't run them, and the model does not miss what it is not shown."""

Choices = Literal["auto", "none", "required"] | Tool


def flat_name(namespace: str, name: str) -> str:
    """Depends on nothing else, so that a call in a history has one name, whatever tools come with it."""
    return f"{namespace}__{name}" if namespace else name


def wire_name(named: Tool | ToolCall) -> str:
    """The name inside its namespace."""
    return named.name.removeprefix(flat_name(named.namespace, ""))


def function_tool(definition: Node, schema: str, *, namespace: str = "") -> Tool:
    """`schema` is the field that holds the JSON schema of the arguments."""
    definition[schema].json()  # refuses what no template can show
    return _tool(definition, definition[schema].value or {}, namespace, more="")


def custom_tool(definition: Node, *, namespace: str = "") -> Tool:
    """A grammar is told to the model, not enforced."""
    form, rule = definition["format"], ""
    if form.given and form["type"].text() == "grammar":
        grammar = form.inside("grammar")
        syntax, text = grammar["syntax"].text(), grammar["definition"].text()
        rule = f"\n\nThe input follows this {syntax} grammar:\n{text}"
    return evolve(_tool(definition, CUSTOM_PARAMETERS, namespace, more=rule), custom=True)


def _tool(definition: Node, parameters: Mapping[str, Any], namespace: str, *, more: str) -> Tool:
    name = definition["name"].name()
    return Tool(
        name=flat_name(namespace, name),
        description=definition["description"].text("") + more,
        parameters=parameters,
        namespace=namespace,
    )


def hosted_type(tool: Node) -> str:
    """The type of a hosted tool; another unknown type is refused, since the agent would miss that tool."""
    kind = tool["type"].text()
    if not HOSTED.match(kind):
        raise tool["type"].problem(
            f"tools of type {kind!r} have no schema here; define a function tool of the same name"
        )
    return kind


def unique(tools: Iterable[tuple[Node, Tool]]) -> tuple[Tool, ...]:
    """Without repeats; two different tools of one name are refused."""
    found: dict[str, Tool] = {}
    for node, tool in tools:
        if found.setdefault(tool.name, tool) != tool:
            raise node.problem(f"another tool is called {tool.name!r} too")
    return tuple(found.values())


def find(tools: Sequence[Tool], name: Node) -> Tool:
    """By flat name or name inside a namespace."""
    wanted = name.text()
    for tool in tools:
        if wanted in (tool.name, wire_name(tool)):
            return tool
    raise name.problem(f"no tool is called {wanted!r}")


def mode(choice: Node, tools: Sequence[Tool]) -> Choices:
    """One of the words `auto`, `none`, `required`."""
    match word := choice.text("auto"):
        case "auto" | "none":
            return word
        case "required" if tools:
            return word
        case "required":
            raise choice.problem("asks for a tool call, but there are no tools")
        case _:
            raise choice.problem(f"{word!r} is not known; auto, none and required are")
