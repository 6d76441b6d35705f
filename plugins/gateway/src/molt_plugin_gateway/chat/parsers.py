"""From the text of a reply to reasoning, text and tool calls. Pure; never raises.

The format of Hermes, Qwen and many others, `<tool_call>` with a JSON object and reasoning between
`<think>` tags, is read here. All other families are vLLM's (`vllm_parsers`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from typing import Literal

from attrs import frozen

from molt_plugin_gateway.exchange import BadRequest, Tool

_log = logging.getLogger(__name__)

Calls = tuple[tuple[str, str], ...]
"""(name, arguments as JSON text) of each."""


SplitReasoning = Callable[[str, str], tuple[str | None, str]]
"""From text and end of the prompt to reasoning and the rest. May raise anything."""

SplitCalls = Callable[[str, Sequence[Tool]], tuple[str, Calls]]
"""From text and tools to text and calls. May raise anything."""


@frozen(kw_only=True)
class ParsedReply:
    text: str
    reasoning: str | None
    """None where the reply holds no reasoning."""
    calls: Calls
    """Names as the model wrote them. None without tools."""


@frozen(kw_only=True)
class Opening:
    """How a family begins a tool call."""

    start: str
    name: str
    """Follows `start` where a tool is named; `NAME` stands for it."""


@frozen(kw_only=True)
class Parser:
    """How a family's replies are read."""

    reasoning: SplitReasoning | None
    calls: SplitCalls | None
    begin: Opening | None
    """None where the family has no fixed one."""
    thinks_first: bool
    """The generation prompt leaves a `<think>` open, which a forced opening has to close."""

    def parse(self, text: str, tools: Sequence[Tool], *, prompt_tail: str) -> ParsedReply:
        """Split a reply (special tokens included, end token removed). Never raises.

        Args:
            prompt_tail: what the generation prompt and a forced opening put before the reply inside
                the assistant's turn, e.g. `<think>\\n`.
        """
        reasoning: str | None = None
        rest = text
        # a forced opening belongs to the call that the reply goes on with
        at = prompt_tail.rfind(self.begin.start) if self.begin else -1
        try:
            if at >= 0:
                rest = prompt_tail[at:] + text
            elif self.reasoning is not None:
                reasoning, rest = self.reasoning(text, prompt_tail)
            calls: Calls = ()
            # without tools, what looks like a call is text: agents define formats of their own in it
            if self.calls is not None and tools:
                rest, calls = self.calls(rest, tools)
            return ParsedReply(text=rest, reasoning=reasoning or None, calls=calls)
        # vLLM's parsers may raise anything on what a model makes up; the reply is then plain text
        except Exception as error:  # noqa: BLE001
            _log.warning("A reply could not be parsed and is passed on as text: %r", error)
            return ParsedReply(text=rest, reasoning=reasoning or None, calls=())

    def opening(self, choice: Literal["auto", "none", "required"] | Tool) -> str:
        """Text that the reply has to begin with for this `tool_choice`: given, not sampled.

        Raises:
            BadRequest: a call is wanted, and the family has no fixed opening.
        """
        if choice in ("auto", "none"):
            return ""
        if self.begin is None:
            raise BadRequest(
                "Only tool_choice 'auto' and 'none' can be honoured: how a tool call begins is not known for this "
                "model (--gateway.tool-parser).",
                param="tool_choice",
            )
        named = self.begin.name.replace("NAME", choice.name) if isinstance(choice, Tool) else ""
        closed = "</think>\n\n" if self.thinks_first else ""
        return closed + self.begin.start + named


def thinking_is_open(prompt_tail: str) -> bool:
    return prompt_tail.rfind("<think>") > prompt_tail.rfind("</think>")


def think_tags(text: str, prompt_tail: str) -> tuple[str | None, str]:
    """Reasoning between `<think>` tags at the start of a reply, the first of which may be in the prompt."""
    if not thinking_is_open(prompt_tail):
        blank, opened, inner = text.partition("<think>")
        if not opened or blank.strip():
            return None, text
        text = inner
    # without an end the reply was cut off while it reasoned
    reasoning, _, rest = text.partition("</think>")
    return reasoning.strip("\n"), rest.lstrip("\n")


# the last one may lack its end: a stop text or the length limit took it
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def tagged_calls(text: str, tools: Sequence[Tool]) -> tuple[str, Calls]:
    """JSON objects between `<tool_call>` tags. What is none of them stays text, tags included."""
    calls: list[tuple[str, str]] = []
    left: list[str] = []
    end = 0
    for block in _TAGGED.finditer(text):
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
