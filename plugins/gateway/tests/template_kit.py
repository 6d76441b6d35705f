"""A chat template for tests: the files in templates/ with a small byte-level tokenizer, without a model's files.

The tokenizer has a few merges, so the same text has several tokenizations: tokens that were read again from
text instead of kept show up as a difference. Folding is minimal; the plugin's own rules are in chat/.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
from molt_plugin_gateway.exchange import BadRequest, Tool, Turn
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END_TEXTS = {
    "chatml": ("<|im_end|>",),
    "qwen3": ("<|im_end|>", "<|endoftext|>"),
    "llama3": ("<|eot_id|>", "<|eom_id|>"),
    "gemma": ("<end_of_turn>",),
    "mistral": ("</s>",),
    "deepseek": ("<｜end▁of▁sentence｜>",),
}
TEMPLATES = tuple(END_TEXTS)
THINKING = ("chatml", "qwen3", "deepseek")
"""Families that show thinking, at least of the last turn."""
OTHER_SPECIAL_TEXTS = (
    "<|im_start|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<bos>", "<start_of_turn>",
    "<s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
    "<tool_call>", "</tool_call>",
)  # fmt: skip
MERGES = (("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "t"), ("i", "n"), ("n", "e"), ("o", "n"))
TEMPLATE_FOLDER = Path(__file__).parent / "templates"


@cache
def tokenizer() -> Tokenizer:
    """One token a byte, a few merges, and the special tokens of all families."""
    words = sorted(pre_tokenizers.ByteLevel.alphabet()) + [left + right for left, right in MERGES]
    vocabulary = {word: number for number, word in enumerate(words)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    special = (*OTHER_SPECIAL_TEXTS, *(text for texts in END_TEXTS.values() for text in texts))
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return made


class FileTemplate:
    """Does what `HfTemplate` does, for one of `TEMPLATES`; counts its renders."""

    def __init__(self, name: str) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self._template = environment.from_string((TEMPLATE_FOLDER / f"{name}.jinja").read_text("utf-8"))
        self._alternating = name in ("gemma", "mistral")
        self.name = name
        self.end_texts = END_TEXTS[name]
        self.num_renders = 0

    def render(self, turns: Sequence[Turn], tools: Sequence[Tool], *, generation_prompt: bool) -> str:
        self.num_renders += 1
        messages = [_message(turn) for turn in turns]
        return self._template.render(
            messages=_fold(messages, alternating=self._alternating, has_tool_role=self.name != "gemma"),
            tools=[{"type": "function", "function": _function(tool)} for tool in tools],
            add_generation_prompt=generation_prompt,
        )

    def encode(self, text: str) -> list[int]:
        return list(tokenizer().encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(tokenizer().decode([int(token) for token in token_ids], skip_special_tokens=False))

    def encode_apart(self, text: str) -> list[int]:
        """The same text as other tokens than `encode` gives: one a byte, as a policy might sample it."""
        return [token for character in text for token in self.encode(character)]


def _refuse(message: str) -> None:
    raise BadRequest(message, param="messages")


def _function(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.text}
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    if turn.role == "tool":
        message["tool_call_id"] = turn.tool_call_id
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": _object(call.arguments)}}
            for call in turn.tool_calls
        ]
    return message


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _fold(messages: list[dict[str, Any]], *, alternating: bool, has_tool_role: bool) -> list[dict[str, Any]]:
    """Only the first turn may be a system turn; where roles must alternate, neighbours are merged.

    Where there is no role for tools, calls and results are text.
    """
    folded: list[dict[str, Any]] = []
    for message in messages:
        if not has_tool_role:
            calls = [json.dumps(call["function"]) for call in message.pop("tool_calls", [])]
            message["content"] += "".join(f"\n{call}" for call in calls)
            message["role"] = "user" if message["role"] == "tool" else message["role"]
        role = message["role"]
        lonely = alternating and role == "system" and [each["role"] for each in messages[1:2]] != ["user"]
        if role == "system" and (folded or lonely):
            message["role"] = role = "user"
        if alternating and folded and folded[-1]["role"] == role and role in ("user", "assistant"):
            folded[-1]["content"] += "\n\n" + message["content"]
            if "tool_calls" in message:
                folded[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
        else:
            folded.append(message)
    return [{**message, "position": position} for position, message in enumerate(folded)]
