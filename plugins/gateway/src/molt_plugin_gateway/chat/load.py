"""A model's folder to its chat template and the parser of its replies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

from molt_core.errors import PreflightError
from molt_plugin_gateway.chat.parsers import Opening, Parser, tagged_calls, think_tags, thinking_is_open
from molt_plugin_gateway.chat.template import HfTemplate
from molt_plugin_gateway.exchange import Turn

_log = logging.getLogger(__name__)

# first match wins: a text that only the templates of one family hold, and the parser's name
TOOL_FAMILIES = (
    ("<function=", "qwen3_coder"),
    ("<arg_key>", "glm45"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("```json", "deepseek_v3"),
    ("<｜tool▁calls▁begin｜>", "deepseek_v31"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("ipython", "llama3_json"),
)
REASONING_FAMILIES = (
    ("<think>", "think"),
    ("</think>", "think"),
    ("[THINK]", "mistral"),
    ("<seed:think>", "seed_oss"),
)
OPENINGS = {
    "hermes": Opening(start="<tool_call>\n", name='{"name": "NAME", "arguments": '),
    "qwen3_coder": Opening(start="<tool_call>\n<function=", name="NAME>\n"),
    "mistral": Opening(start="[TOOL_CALLS]", name='[{"name": "NAME", "arguments": '),
    "llama3_json": Opening(start='{"name": "', name='NAME", "parameters": '),
    "deepseek_v3": Opening(
        start="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>", name="NAME\n```json\n"
    ),
}


def load_chat(
    model_folder: str, *, tool_parser: str, reasoning_parser: str, end_token_ids: Sequence[int] = ()
) -> tuple[HfTemplate, Parser]:
    """Takes a second, and 12 s more where a parser of vLLM is needed.

    Args:
        tool_parser: `auto` (by the text of the chat template), `none`, `hermes`, or a name of vLLM's.
        reasoning_parser: `auto`, `none`, `think`, or a name of vLLM's.
        end_token_ids: of the run, beside the tokenizer's own.

    Raises:
        PreflightError: no chat template, or no such parser.
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model_folder)
    written = tokenizer.chat_template
    if not written:
        raise PreflightError(
            f"{model_folder}: the tokenizer has no chat template, which agents need; "
            "use an instruct model, or save a chat_template.jinja in the folder"
        )
    text = "\n".join(written.values()) if isinstance(written, dict) else written
    template = HfTemplate(
        tokenizer, name=model_folder.rstrip("/").rpartition("/")[2], end_token_ids=end_token_ids
    )
    if tool_parser == "auto":
        tool_parser = _family(text, TOOL_FAMILIES) if template.rules.tools else "hermes"
        if not tool_parser:
            _log.warning(
                "The format of tool calls of %s is not known; they stay text. Name it with --gateway.tool-parser.",
                model_folder,
            )
    if reasoning_parser == "auto":
        reasoning_parser = _family(text, REASONING_FAMILIES)
    prompt = template.render([Turn(role="user", content=("x",))], (), generation_prompt=True)
    begin = OPENINGS.get(tool_parser)
    # the newer of Mistral's two formats, told apart as vLLM does
    if tool_parser == "mistral" and "[ARGS]" in tokenizer.get_vocab():
        begin = Opening(start="[TOOL_CALLS]", name="NAME[ARGS]")
    return template, Parser(
        reasoning=think_tags
        if reasoning_parser == "think"
        else _vllm("reasoning", reasoning_parser, template),
        calls=tagged_calls if tool_parser == "hermes" else _vllm("calls", tool_parser, template),
        begin=begin,
        thinks_first=thinking_is_open(prompt),
    )


def _family(text: str, table: Sequence[tuple[str, str]]) -> str:
    return next((name for mark, name in table if mark in text), "")


def _vllm(what: Literal["calls", "reasoning"], name: str, template: HfTemplate) -> Any:
    if name in ("", "none"):
        return None
    try:
        from molt_plugin_gateway.chat.vllm_parsers import vllm_calls, vllm_reasoning
    except ImportError as error:
        raise PreflightError(
            f"the parser {name} is vLLM's, and vLLM can't be imported here: {error}; "
            "install it with molt-plugin-vllm[cpu] or [cuda], or choose hermes/think or none"
        ) from error
    return (vllm_calls if what == "calls" else vllm_reasoning)(name, template)
