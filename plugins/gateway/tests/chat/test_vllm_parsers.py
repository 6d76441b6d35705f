"""vLLM's parsers as they are: each test needs vLLM, whose import takes 12 s."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from molt_plugin_gateway.chat.load import load_chat
from molt_plugin_gateway.chat.parsers import ParsedReply, Parser, tagged_calls
from molt_plugin_gateway.chat.template import HfTemplate
from molt_plugin_gateway.exchange import Tool

from molt_core.errors import PreflightError

pytestmark = pytest.mark.real
pytest.importorskip("vllm")

MakeModel = Callable[..., str]
TOOLS = [
    Tool(
        name="get_weather",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    )
]
TEMPLATE = "{% for message in messages %}{{ message.role + ': ' + message.content }}{% endfor %}"
SPECIALS = (
    "[TOOL_CALLS]", "<think>", "</think>", "<|python_tag|>", "<tool_call>", "</tool_call>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
)  # fmt: skip

REPLIES = {
    "mistral with [ARGS]": '[TOOL_CALLS]get_weather[ARGS]{"city": "Köln", "days": 2}',
    "mistral": '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Köln", "days": 2}}]',
    "llama3_json": '{"name": "get_weather", "parameters": {"city": "Köln", "days": 2}}',
    "deepseek_v3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Köln", "days": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "qwen3_coder": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
    ),
}


def _loaded(make_model: MakeModel, tool_parser: str, reasoning_parser: str = "none") -> Parser:
    name, _, special = tool_parser.partition(" with ")
    folder = make_model(TEMPLATE, (*SPECIALS, special) if special else SPECIALS)
    return load_chat(folder, tool_parser=name, reasoning_parser=reasoning_parser)[1]


@pytest.mark.parametrize("family", REPLIES)
def test_a_call_in_the_format_of_a_family_is_read_whole_and_after_a_forced_opening(
    make_model: MakeModel, family: str
) -> None:
    parser = _loaded(make_model, family)
    for opening in ("", parser.opening("required"), parser.opening(TOOLS[0])):
        assert REPLIES[family].startswith(opening)
        parsed = parser.parse(REPLIES[family][len(opening) :], TOOLS, prompt_tail=opening)
        ((name, arguments),) = parsed.calls
        assert (name, json.loads(arguments)) == ("get_weather", {"city": "Köln", "days": 2})
        assert not parsed.text.strip()
    plain = parser.parse("No call here.", TOOLS, prompt_tail="")
    assert plain == ParsedReply(text="No call here.", reasoning=None, calls=())


@pytest.mark.parametrize("family", REPLIES)
def test_a_call_that_was_cut_off_never_raises(make_model: MakeModel, family: str) -> None:
    parser = _loaded(make_model, family)
    for length in range(0, len(REPLIES[family]), 7):
        parser.parse(REPLIES[family][:length], TOOLS, prompt_tail="")


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        "plain", f"Let me see.\n{CALL}", f"{CALL}\n{CALL}", CALL.removesuffix("\n</tool_call>"),
        "<tool_call>{bad}</tool_call>", "a <tool_call> in a text", '<tool_call>{"arguments": {}}</tool_call>',
    ],
)  # fmt: skip
def test_our_reader_of_tagged_calls_agrees_with_hermes(make_model: MakeModel, text: str) -> None:
    from molt_plugin_gateway.chat.vllm_parsers import vllm_calls
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(make_model(TEMPLATE, SPECIALS))
    assert tagged_calls(text, TOOLS) == vllm_calls("hermes", HfTemplate(tokenizer, name="m"))(text, TOOLS)


@pytest.mark.parametrize("name", ["deepseek_r1", "qwen3"])
def test_reasoning_parsers_see_whether_the_prompt_ends_the_thinking(make_model: MakeModel, name: str) -> None:
    parser = _loaded(make_model, "hermes", name)
    inside = parser.parse("So.</think>Hello", [], prompt_tail="<think>\n")
    assert (inside.reasoning, inside.text) == ("So.", "Hello")
    assert parser.parse("Hello", [], prompt_tail="<think>\n\n</think>\n\n").text == "Hello"


@pytest.mark.parametrize("kind", ["tool", "reasoning"])
def test_an_unknown_name_is_refused_with_those_that_there_are(make_model: MakeModel, kind: str) -> None:
    names = {"tool_parser": "none", "reasoning_parser": "none"} | {f"{kind}_parser": "qwen9"}
    with pytest.raises(PreflightError, match=rf"--gateway.{kind}-parser qwen9: .*(hermes|think).*mistral"):
        load_chat(make_model(TEMPLATE), **names)


def test_a_parser_whose_tokens_the_tokenizer_lacks_is_refused(make_model: MakeModel) -> None:
    with pytest.raises(PreflightError, match="deepseek_v3 does not fit the model's tokenizer"):
        load_chat(make_model(TEMPLATE), tool_parser="deepseek_v3", reasoning_parser="none")
