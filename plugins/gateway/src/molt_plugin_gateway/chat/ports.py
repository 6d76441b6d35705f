"""What the capture and the session need of a model's chat format, as protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from molt_plugin_gateway.exchange import Tool, Turn


class ChatTemplate(Protocol):
    """Tokenizer and chat template. All methods are pure and may be called from threads."""

    @property
    def end_texts(self) -> tuple[str, ...]:
        """Texts of the special tokens that end a reply."""
        ...

    def render(self, turns: Sequence[Turn], tools: Sequence[Tool], *, generation_prompt: bool) -> str:
        """The conversation as the model reads it. Folds what the template can't express by fixed rules.

        Raises:
            BadRequest: the template refuses the conversation, or it holds what the model can't read.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids; adds no special tokens, reads those that are written in the text."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text, special tokens included."""
        ...


@frozen(kw_only=True)
class ParsedReply:
    text: str
    reasoning: str | None
    """None where the reply holds no reasoning."""
    calls: tuple[tuple[str, str], ...]
    """(name, arguments as JSON text) of each tool call; names as the model wrote them. None without tools."""


class ReplyParser(Protocol):
    def parse(self, text: str, tools: Sequence[Tool], *, prompt_tail: str) -> ParsedReply:
        """Split a reply (special tokens included, end token removed). Never raises.

        Args:
            prompt_tail: what the generation prompt and a forced opening put before the reply inside
                the assistant's turn, e.g. `<think>\\n`.
        """
        ...

    def opening(self, tool: Tool | None) -> str:
        """Text that begins a tool call (of `tool`, where one is named): given, not sampled, for `tool_choice`.

        Empty where the family has no fixed opening.
        """
        ...
