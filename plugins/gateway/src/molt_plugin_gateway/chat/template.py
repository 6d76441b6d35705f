"""A Hugging Face tokenizer with its chat template.

In: turns and tools. Out: text, and its tokens. The template is compiled once, by transformers;
what it can't express is folded by `folding` and `tool_fallback`. Knows nothing of sessions.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from molt_plugin_gateway.chat import folding, tool_fallback
from molt_plugin_gateway.exchange import BadRequest, Image, Tool, Turn

_log = logging.getLogger(__name__)


class HfTemplate:
    """Once made, its methods are pure and may be called from threads."""

    def __init__(self, tokenizer: Any, *, name: str, end_token_ids: Sequence[int] = ()) -> None:
        """`tokenizer` is a `PreTrainedTokenizerBase` with a chat template, of the model `name`."""
        self.tokenizer = tokenizer
        self._name = name
        # transformers changes settings of the Rust tokenizer on each call, which threads can't share
        self._fast = getattr(tokenizer, "backend_tokenizer", None)
        if self._fast is not None:
            self._fast.no_truncation()
            self._fast.no_padding()
        ids = {tokenizer.eos_token_id, *end_token_ids} - {None}
        self.end_texts = tuple(self.decode([token_id]) for token_id in sorted(ids))
        """Texts of the special tokens that end a reply."""
        self.rules = folding.probe(self._probe)
        self._noted = False

    def render(self, turns: Sequence[Turn], tools: Sequence[Tool], *, generation_prompt: bool) -> str:
        """The conversation as the model reads it. Folds what the template can't express by fixed rules.

        Raises:
            BadRequest: the template refuses the conversation, or it holds what the model can't read.
        """
        for number, turn in enumerate(turns):
            if any(isinstance(part, Image) for part in turn.content):
                raise BadRequest(
                    f"message {number} ({turn.role}) holds an image; the model {self._name} reads text only",
                    param=f"messages.{number}.content",
                )
        if not self.rules.tools:
            if tools and not self._noted:
                self._noted = True
                _log.warning(
                    "The chat template of %s does not show tools: they are described in the system turn, and "
                    "calls are read from <tool_call> tags.",
                    self._name,
                )
            turns, tools = tool_fallback.in_text(turns, tools), ()
        elif not self.rules.tool_role:
            turns = tool_fallback.results_as_users(turns)
        folded = folding.fold(turns, self.rules)
        try:
            text = self._apply(folded, tools, generation_prompt, short_ids=self.rules.short_ids)
            # lone surrogates, which JSON can escape, have no tokens
            text.encode()
            return text
        # a template is a program of the model's authors and may raise anything
        except Exception as error:
            raise BadRequest(
                f"the chat template of {self._name} refuses the conversation: {error}", param="messages"
            ) from error

    def encode(self, text: str) -> list[int]:
        """Token ids; adds no special tokens, reads those that are written in the text."""
        if self._fast is None:
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        return list(self._fast.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text, special tokens included."""
        # arrays of numpy too
        ids = [int(token_id) for token_id in token_ids]
        return str((self._fast or self.tokenizer).decode(ids, skip_special_tokens=False))

    def _probe(self, turns: Sequence[Turn], tools: Sequence[Tool], *, short_ids: bool) -> str | None:
        try:
            return self._apply(turns, tools, True, short_ids=short_ids)
        except Exception:  # noqa: BLE001 - refusing is what the probe wants to know of
            return None

    def _apply(
        self, turns: Sequence[Turn], tools: Sequence[Tool], generation_prompt: bool, *, short_ids: bool
    ) -> str:
        text = self.tokenizer.apply_chat_template(
            _messages(turns, short_ids=short_ids),
            tools=[tool_fallback.schema(tool) for tool in tools] or None,
            add_generation_prompt=generation_prompt,
            tokenize=False,
        )
        return str(text)


def _messages(turns: Sequence[Turn], *, short_ids: bool) -> list[dict[str, Any]]:
    """Turns as templates expect them: content is always a string, arguments are objects."""

    def written(call_id: str) -> str:
        return hashlib.sha256(call_id.encode()).hexdigest()[:9] if short_ids else call_id

    messages = []
    names: dict[str, str] = {}
    for turn in turns:
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if turn.reasoning is not None:
            # a template reads one of these names
            message |= {"reasoning_content": turn.reasoning, "reasoning": turn.reasoning}
        if turn.tool_calls:
            names.update((call.id, call.name) for call in turn.tool_calls)
            message["tool_calls"] = [
                {
                    "id": written(call.id),
                    "type": "function",
                    "function": {"name": call.name, "arguments": tool_fallback.arguments(call)},
                }
                for call in turn.tool_calls
            ]
        if turn.role == "tool":
            name = names.get(turn.tool_call_id, "")
            message |= {"tool_call_id": written(turn.tool_call_id), "name": name}
        messages.append(message)
    return messages
