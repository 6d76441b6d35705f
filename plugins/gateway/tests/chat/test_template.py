from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from molt_plugin_gateway.chat.load import load_chat
from molt_plugin_gateway.chat.template import HfTemplate
from molt_plugin_gateway.exchange import BadRequest, Image, Tool, Turn

MakeModel = Callable[..., str]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
USER = Turn(role="user", content=("hi", " there"))


@pytest.fixture
def template(make_model: MakeModel) -> HfTemplate:
    return load_chat(make_model(CHATML), tool_parser="none", reasoning_parser="none")[0]


def test_parts_of_a_turn_are_one_text_and_reasoning_is_shown(template: HfTemplate) -> None:
    reply = Turn(role="assistant", content=("yes",), reasoning="So.")
    assert template.render([USER, reply], [], generation_prompt=True) == (
        "<|im_start|>user\nhi there<|im_end|>\n<|im_start|>assistant\n<think>So.</think>yes<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_special_tokens_in_a_text_are_one_token_and_no_others_are_added(template: HfTemplate) -> None:
    ids = template.encode("<|im_start|>hé<|im_end|>")
    assert len(ids) == 5
    assert template.decode(np.asarray(ids, np.int32)) == "<|im_start|>hé<|im_end|>"
    assert template.encode("") == []
    assert template.end_texts == ("<|im_end|>",)


def test_end_tokens_of_the_run_are_end_texts(make_model: MakeModel) -> None:
    folder = make_model(CHATML)
    start = load_chat(folder, tool_parser="none", reasoning_parser="none")[0].encode("<|im_start|>")
    template, _ = load_chat(folder, tool_parser="none", reasoning_parser="none", end_token_ids=start)
    assert set(template.end_texts) == {"<|im_end|>", "<|im_start|>"}


def test_threads_may_share_it(template: HfTemplate) -> None:
    text = "a b c" * 2000
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(template.encode, [text] * 40))
    assert all(each == found[0] for each in found)


def test_an_image_is_refused_by_the_number_of_its_message(template: HfTemplate) -> None:
    image = Turn(role="user", content=("see", Image(url="data:image/png;base64,AA")))
    with pytest.raises(BadRequest, match=r"message 1 \(user\) holds an image.*reads text only") as raised:
        template.render([USER, image], [], generation_prompt=True)
    assert raised.value.param == "messages.1.content"


def test_what_the_template_refuses_is_the_callers_error_in_the_templates_words(make_model: MakeModel) -> None:
    folder = make_model("{% if messages | length > 2 %}{{ raise_exception('too many') }}{% endif %}" + CHATML)
    template, _ = load_chat(folder, tool_parser="none", reasoning_parser="none")
    with pytest.raises(BadRequest, match="refuses the conversation: too many"):
        template.render([USER, Turn(role="assistant"), USER], [], generation_prompt=True)


def test_text_that_has_no_tokens_is_the_callers_error(template: HfTemplate) -> None:
    with pytest.raises(BadRequest, match="surrogates"):
        template.render([Turn(role="user", content=("\ud800",))], [], generation_prompt=True)


def test_describing_tools_in_the_systems_turn_is_noted_once(
    template: HfTemplate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    template.render([USER], [], generation_prompt=True)
    assert not caplog.messages
    for _ in range(2):
        template.render([USER], [Tool(name="look")], generation_prompt=True)
    (message,) = caplog.messages
    assert "does not show tools" in message
