"""From the text of a reply to reasoning, text and tool calls. Pure; never raises.

The format of Hermes, Qwen and many others, `<tool_call>` with a JSON object and reasoning between
`<think>` tags, is read here. All other families are vLLM's (`vllm_parsers`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from molt_plugin_gateway.chat.ports import ParsedReply
from molt_plugin_gateway.exchange import Tool

_log = logging.getLogger(__name__)

Calls = tuple[tuple[str, str], ...]
"""(name, arguments as JSON text) of each."""


class ReasoningReader(Protocol):
    def split(self, text: str, prompt_tail: str) -> tuple[str | None, str]:
        """Reasoning and the rest. May raise anything."""
        ...


class CallReader(Protocol):
    def split(self, text: str, tools: Sequence[Tool]) -> tuple[str, Calls]:
        """Text and calls. May raise anything."""
        ...


@frozen(kw_only=True)
class Opening:
    """How a family begins a tool call."""

    start: str
    name: str
    """Follows `start` where a tool is named; `NAME` stands for it."""


@frozen(kw_only=True)
class Parser:
    """See `ports.ReplyParser`."""

    reasoning: ReasoningReader | None
    calls: CallReader | None
    begin: Opening | None
    """None where the family has no fixed one."""
    thinks_first: bool
    """The generation prompt leaves a `<think>` open, which a forced opening has to close."""

    def parse(self, text: str, tools: Sequence[Tool], *, prompt_tail: str) -> ParsedReply:
        reasoning: str | None = None
        rest = text
        # a forced opening belongs to the call that the reply goes on with
        at = prompt_tail.rfind(self.begin.start) if self.begin else -1
        try:
            if at >= 0:
                rest = prompt_tail[at:] + text
            elif self.reasoning is not None:
                reasoning, rest = self.reasoning.split(text, prompt_tail)
            calls: Calls = ()
            # without tools, what looks like a call is text: agents define formats of their own in it
            if self.calls is not None and tools:
                rest, calls = self.calls.split(rest, tools)
            return ParsedReply(text=rest, reasoning=reasoning or None, calls=calls)
        # vLLM's parsers may raise anything on what a model makes up; the reply is then plain text
        except Exception as error:  # noqa: BLE001
            _log.warning("A reply could not be parsed and is passed on as text: %r", error)
            return ParsedReply(text=rest, reasoning=reasoning or None, calls=())

    def opening(self, tool: Tool | None) -> str:
        if self.begin is None:
            return ""
        closed = "</think>\n\n" if self.thinks_first else ""
        return closed + self.begin.start + (self.begin.name.replace("NAME", tool.name) if tool else "")


def thinking_is_open(prompt_tail: str) -> bool:
    return prompt_tail.rfind("<think>") > prompt_tail.rfind("</think>")


class ThinkTags:
    """Reasoning between `<think>` tags at the start of a reply, the first of which may be in the prompt."""

    def split(self, text: str, prompt_tail: str) -> tuple[str | None, str]:
        if not thinking_is_open(prompt_tail):
            blank, opened, inner = text.partition("<think>")
            if not opened or blank.strip():
                return None, text
            text = inner
        # without an end the reply was cut off while it reasoned
        reasoning, _, rest = text.partition("</think>")
        return reasoning.strip("\n"), rest.lstrip("\n")


class TaggedCalls:
    """JSON objects between `<tool_call>` tags. What is none of them stays text, tags included."""

    # the last one may lack its end: a stop text or the length limit took it
    _BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)

    def split(self, text: str, tools: Sequence[Tool]) -> tuple[str, Calls]:
        calls: list[tuple[str, str]] = []
        left: list[str] = []
        end = 0
        for block in self._BLOCK.finditer(text):
            call = _read_call(block[1])
            if call is not None:
                calls.append(call)
                left.append(text[end : block.start()])
                end = block.end()
        left.append(text[end:])
        if calls:
            # the line breaks between calls are no text
            left = [left[0] if left[0].strip() else "", *(each for each in left[1:] if each.strip())]
        return "".join(left), tuple(calls)


def _read_call(block: str) -> tuple[str, str] | None:
    try:
        # strict=False: line breaks inside strings are what models write
        read = json.loads(block, strict=False, parse_constant=_refuse)
        arguments = read.get("arguments", {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False, parse_constant=_refuse)
        written = json.dumps(arguments, ensure_ascii=False)
        # lone surrogates, which JSON can escape, are no text
        (read["name"] + written).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return (read["name"], written) if isinstance(arguments, dict) else None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
