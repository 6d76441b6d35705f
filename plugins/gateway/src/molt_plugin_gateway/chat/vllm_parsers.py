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
from molt_plugin_gateway.chat.parsers import Calls
from molt_plugin_gateway.chat.tool_fallback import schema
from molt_plugin_gateway.exchange import Tool


class VllmCalls:
    def __init__(self, name: str, tokenizer: Any, _encode: Callable[[str], list[int]]) -> None:
        """
        Raises:
            PreflightError: vLLM has no such parser, or it does not fit the tokenizer.
        """
        self._parser = _found(
            "tool", name, ToolParserManager.get_tool_parser, ToolParserManager.list_registered
        )
        self._tokenizer = get_cached_tokenizer(tokenizer)
        _check("tool", name, self._parser, self._tokenizer)

    def split(self, text: str, tools: Sequence[Tool]) -> tuple[str, Calls]:
        request = _request(tools)
        # a parser keeps the state of one reply
        found = self._parser(self._tokenizer, request.tools).extract_tool_calls(text, request)
        if not found.tools_called:
            return text, ()
        calls = tuple((each.function.name, each.function.arguments) for each in found.tool_calls)
        return found.content or "", calls


class VllmReasoning:
    def __init__(self, name: str, tokenizer: Any, encode: Callable[[str], list[int]]) -> None:
        """
        Raises:
            PreflightError: vLLM has no such parser, or it does not fit the tokenizer.
        """
        self._encode = encode
        self._parser = _found(
            "reasoning",
            name,
            ReasoningParserManager.get_reasoning_parser,
            ReasoningParserManager.list_registered,
        )
        self._tokenizer = get_cached_tokenizer(tokenizer)
        _check("reasoning", name, self._parser, self._tokenizer)

    def split(self, text: str, prompt_tail: str) -> tuple[str | None, str]:
        parser = self._parser(self._tokenizer)
        if parser.is_reasoning_end(self._encode(prompt_tail)):
            return None, text
        reasoning, rest = parser.extract_reasoning(text, _request(()))
        return reasoning, rest or ""


def _found(kind: str, name: str, find: Callable[[str], Any], names: Callable[[], list[str]]) -> Any:
    try:
        return find(name)
    except KeyError as error:
        raise PreflightError(
            f"--gateway.{kind}-parser {name}: there is no such parser; wanted auto, none, "
            f"{'hermes' if kind == 'tool' else 'think'} or one of vLLM's: {', '.join(names())}"
        ) from error


def _check(kind: str, name: str, parser: Any, tokenizer: Any) -> None:
    try:
        parser(tokenizer)
    # each parser has its own way to say that a tokenizer lacks its tokens
    except Exception as error:
        raise PreflightError(
            f"--gateway.{kind}-parser {name} does not fit the model's tokenizer: {error}; name another one, or none"
        ) from error


def _request(tools: Sequence[Tool]) -> ChatCompletionRequest:
    body: dict[str, Any] = {"model": "policy", "messages": []}
    if tools:
        body |= {"tools": [schema(tool) for tool in tools], "tool_choice": "auto"}
    return ChatCompletionRequest.model_validate(body)
