"""vLLM's tool and reasoning parsers by name, as the readers of `parsers`.

Importing this module imports vLLM: 12 s and 600 MB. It happens only where a family needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers.hf import get_cached_tokenizer
from vllm.tool_parsers import ToolParserManager

from molt_core.errors import PreflightError
from molt_plugin_gateway.chat.parsers import Calls, SplitCalls, SplitReasoning
from molt_plugin_gateway.chat.template import HfTemplate
from molt_plugin_gateway.chat.tool_fallback import schema
from molt_plugin_gateway.exchange import Tool


def vllm_calls(name: str, template: HfTemplate) -> SplitCalls:
    """
    Raises:
        PreflightError: vLLM has no such parser, or it does not fit the tokenizer.
    """
    tokenizer = get_cached_tokenizer(template.tokenizer)
    parser = _checked("tool", name, ToolParserManager.get_tool_parser, ToolParserManager, tokenizer)

    def split(text: str, tools: Sequence[Tool]) -> tuple[str, Calls]:
        request = _request(tools)
        # a parser keeps the state of one reply
        found = parser(tokenizer, request.tools).extract_tool_calls(text, request)
        if not found.tools_called:
            return text, ()
        calls = tuple((each.function.name, each.function.arguments) for each in found.tool_calls)
        return found.content or "", calls

    return split


def vllm_reasoning(name: str, template: HfTemplate) -> SplitReasoning:
    """
    Raises:
        PreflightError: vLLM has no such parser, or it does not fit the tokenizer.
    """
    tokenizer = get_cached_tokenizer(template.tokenizer)
    find = ReasoningParserManager.get_reasoning_parser
    make = _checked("reasoning", name, find, ReasoningParserManager, tokenizer)

    def split(text: str, prompt_tail: str) -> tuple[str | None, str]:
        parser = make(tokenizer)
        if parser.is_reasoning_end(template.encode(prompt_tail)):
            return None, text
        reasoning, rest = parser.extract_reasoning(text, _request(()))
        return reasoning, rest or ""

    return split


def _checked(kind: str, name: str, find: Callable[[str], Any], manager: Any, tokenizer: Any) -> Any:
    """The parser's class; its constructor says whether it fits the tokenizer."""
    try:
        parser = find(name)
    except KeyError as error:
        raise PreflightError(
            f"--gateway.{kind}-parser {name}: there is no such parser; wanted auto, none, "
            f"{'hermes' if kind == 'tool' else 'think'} or one of vLLM's: {', '.join(manager.list_registered())}"
        ) from error
    try:
        parser(tokenizer)
    # each parser has its own way to say that a tokenizer lacks its tokens
    except Exception as error:
        raise PreflightError(
            f"--gateway.{kind}-parser {name} does not fit the model's tokenizer: {error}; name another one, or none"
        ) from error
    return parser


def _request(tools: Sequence[Tool]) -> ChatCompletionRequest:
    body: dict[str, Any] = {"model": "policy", "messages": []}
    if tools:
        body |= {"tools": [schema(tool) for tool in tools], "tool_choice": "auto"}
    return ChatCompletionRequest.model_validate(body)
