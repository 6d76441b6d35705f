from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from molt_plugin_gateway.chat.load import load_chat
from molt_plugin_gateway.chat.parsers import tagged_calls, think_tags
from molt_plugin_gateway.exchange import BadRequest, Tool, ToolCall, Turn

from molt_core.api.options import NoOptions
from molt_core.errors import PreflightError

MakeModel = Callable[..., str]
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a: {% endif %}"
TOOLS = (
    "{{ tools | tojson if tools else '' }}{% for m in messages %}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}{% endfor %}"
)
TOOL = Tool(name="look", description="Looks.")


def test_a_template_without_tools_or_reasoning_gets_tagged_calls_alone(make_model: MakeModel) -> None:
    _, parser = load_chat(make_model(PLAIN), tool_parser="auto", reasoning_parser="auto")
    assert parser.calls is tagged_calls
    assert parser.reasoning is None


def test_families_are_known_by_the_text_of_the_template(make_model: MakeModel) -> None:
    folder = make_model(TOOLS + "{% if add_generation_prompt %}<think>\n{% endif %}")
    _, parser = load_chat(folder, tool_parser="auto", reasoning_parser="auto")
    assert parser.calls is tagged_calls
    assert parser.reasoning is think_tags
    assert parser.opening(TOOL) == '</think>\n\n<tool_call>\n{"name": "look", "arguments": '


def test_an_unknown_format_is_left_as_text_and_said(
    make_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_model(TOOLS.replace("tool_call>", "odd>"))
    _, parser = load_chat(folder, tool_parser="auto", reasoning_parser="auto")
    assert parser.calls is None
    with pytest.raises(BadRequest, match="--gateway.tool-parser"):
        parser.opening(TOOL)
    assert "--gateway.tool-parser" in caplog.text


def test_none_leaves_a_reply_as_it_is(make_model: MakeModel) -> None:
    _, parser = load_chat(make_model(PLAIN), tool_parser="none", reasoning_parser="none")
    text = '<think>a</think><tool_call>{"name": "f"}</tool_call>'
    assert parser.parse(text, [], prompt_tail="").text == text


def test_a_folder_without_a_chat_template_is_refused_by_name(make_model: MakeModel) -> None:
    with pytest.raises(PreflightError, match=r"model: the tokenizer has no chat template"):
        load_chat(make_model(None), tool_parser="auto", reasoning_parser="auto")


def test_vllm_is_not_imported_where_its_parsers_are_not_needed(make_model: MakeModel) -> None:
    program = (
        "import sys; from molt_plugin_gateway.chat.load import load_chat; "
        "load_chat(sys.argv[1], tool_parser='auto', reasoning_parser='auto'); "
        "sys.exit('vllm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, make_model(PLAIN)], check=False).returncode == 0


@pytest.mark.real
@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_a_packaged_model_reads_back_the_call_it_was_shown(name: str) -> None:
    from molt_plugin_models.smollm2 import SmolLM2
    from molt_plugin_models.tiny import Tiny

    from molt_core.launch.model_process import cache_root

    folder = {"tiny": Tiny, "smollm2": SmolLM2}[name](NoOptions()).prepare(cache_root())
    template, parser = load_chat(str(folder), tool_parser="auto", reasoning_parser="auto")
    call = ToolCall(id="c1", name="look", arguments='{"at": "Köln"}')
    turns = [
        Turn(role="user", content=("hi",)),
        Turn(role="assistant", content=("Well.",), tool_calls=(call,)),
    ]
    prompt = template.render(turns[:1], [TOOL], generation_prompt=True)
    whole = template.render(turns, [TOOL], generation_prompt=False)
    assert whole.startswith(prompt)
    reply, end, _ = whole[len(prompt) :].partition(template.end_texts[0])
    assert end
    parsed = parser.parse(template.decode(template.encode(reply)), [TOOL], prompt_tail="")
    assert parsed.text.strip() == "Well."
    assert parsed.calls == (("look", call.arguments),)
