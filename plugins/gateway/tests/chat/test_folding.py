"""Each rule on a template that needs it; templates here are as small as the quirk allows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from molt_plugin_gateway.chat.load import load_chat
from molt_plugin_gateway.chat.template import HfTemplate
from molt_plugin_gateway.exchange import Tool, ToolCall, Turn

MakeModel = Callable[..., str]

CALLS = "{% for call in m.tool_calls or [] %}[{{ call.id }} {{ call.function | tojson }}]{% endfor %}"
TURN = "<{{ m.role }}>{{ m.content }}" + CALLS
LOOP = "{% for m in messages %}"
TOOLS = "{{ tools | tojson if tools else '' }}"
NATIVE = TOOLS + LOOP + TURN + "{% endfor %}"
ALTERNATING = (  # like Gemma: no system, no tools, user and assistant take turns
    LOOP
    + "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
STRICT = (  # like Mistral: turns alternate apart from calls and results, ids have nine characters
    TOOLS + "{% set ns = namespace(n=0) %}" + LOOP
    + "{% if m.role == 'user' or m.role == 'assistant' and not m.tool_calls %}"
    "{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "{% set ns.n = ns.n + 1 %}{% endif %}"
    "{% for call in m.tool_calls or [] %}{% if call.id | length != 9 %}{{ raise_exception('9') }}{% endif %}"
    "{% endfor %}"
    + TURN + "{% endfor %}"
)  # fmt: skip
ONE_CALL = (  # like Llama 3
    TOOLS + LOOP + "{% if (m.tool_calls or []) | length > 1 %}{{ raise_exception('single') }}{% endif %}"
    + TURN + "{% endfor %}"
)  # fmt: skip
NO_RESULTS = TOOLS + LOOP + "{% if m.role != 'tool' %}" + TURN + "{% endif %}{% endfor %}"

TOOL = Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})


def _user(text: str) -> Turn:
    return Turn(role="user", content=(text,))


def _call(call_id: str, arguments: str = '{"at":  1}') -> ToolCall:
    return ToolCall(id=call_id, name="look", arguments=arguments)


def _calling(*calls: ToolCall, text: str = "") -> Turn:
    return Turn(role="assistant", content=(text,) if text else (), tool_calls=calls)


def _result(call_id: str, text: str) -> Turn:
    return Turn(role="tool", content=(text,), tool_call_id=call_id)


def _template(make_model: MakeModel, text: str) -> HfTemplate:
    return load_chat(make_model(text), tool_parser="none", reasoning_parser="none")[0]


def _render(template: HfTemplate, *turns: Turn, tools: tuple[Tool, ...] = ()) -> str:
    return template.render(turns, tools, generation_prompt=False)


def test_a_template_that_knows_everything_gets_everything_as_it_is(make_model: MakeModel) -> None:
    template = _template(make_model, NATIVE)
    rules = template.rules
    assert rules.system
    assert rules.tools
    assert rules.tool_role
    assert rules.parallel_calls
    assert rules.user_after_user
    assert rules.user_after_tool
    assert not rules.short_ids
    turns = (
        _user("a"),
        _user("b"),
        _calling(_call("c1"), _call("c2")),
        _result("c1", "x"),
        _result("c2", "y"),
        _user("d"),
    )
    assert _render(template, *turns) == (
        '<user>a<user>b<assistant>[c1 {"name": "look", "arguments": {"at": 1}}][c2 {"name": "look", "arguments": '
        '{"at": 1}}]<tool>x<tool>y<user>d'
    )


def test_leading_system_turns_are_one_and_later_ones_are_user_turns(make_model: MakeModel) -> None:
    system = [Turn(role="system", content=(text,)) for text in ("one", "two", "three")]
    rendered = _render(_template(make_model, NATIVE), *system[:2], _user("a"), system[2])
    assert rendered == "<system>one\n\ntwo<user>a<user>three"


def test_without_a_system_role_it_goes_before_the_first_user_text(make_model: MakeModel) -> None:
    template = _template(make_model, ALTERNATING)
    system = Turn(role="system", content=("be",))
    assert not template.rules.system
    assert _render(template, system, _user("a")) == "<user>be\n\na"
    assert _render(template, system) == "<user>be"
    assert _render(template, system, _calling(text="hi"), _user("a")) == "<user>be<assistant>hi<user>a"


def test_neighbours_of_one_role_are_joined_where_roles_must_take_turns(make_model: MakeModel) -> None:
    template = _template(make_model, ALTERNATING)
    assert not template.rules.user_after_user
    rendered = _render(template, _user("a"), _user("b"), _calling(text="c"), _calling(text="d"), _user("e"))
    assert rendered == "<user>a\n\nb<assistant>c\n\nd<user>e"


def test_ids_are_shortened_where_the_template_demands_it_and_stay_different(make_model: MakeModel) -> None:
    template = _template(make_model, STRICT)
    assert template.rules.short_ids
    assert template.rules.tool_role
    rendered = _render(template, _user("a"), _calling(_call("call_1"), _call("call_2")), tools=(TOOL,))
    first, second = (part.split()[0] for part in rendered.rpartition("<assistant>")[2].split("[")[1:])
    assert first != second
    assert len(first) == len(second) == 9


def test_a_user_turn_after_a_result_joins_it_where_it_may_not_stand(make_model: MakeModel) -> None:
    template = _template(make_model, STRICT)
    assert not template.rules.user_after_tool
    turns = (
        _user("a"),
        _calling(_call("c1"), _call("c2")),
        _result("c1", "x"),
        _result("c2", "y"),
        _user("and?"),
    )
    assert _render(template, *turns).endswith("<tool>x<tool>y\n\nand?")


def test_parallel_calls_get_a_turn_each_where_a_turn_holds_one(make_model: MakeModel) -> None:
    template = _template(make_model, ONE_CALL)
    assert not template.rules.parallel_calls
    turns = (_user("a"), _calling(_call("c1"), _call("c2"), text="t"), _result("c2", "y"), _result("c1", "x"))
    call = '{"name": "look", "arguments": {"at": 1}}'
    assert _render(template, *turns) == f"<user>a<assistant>t[c1 {call}]<tool>x<assistant>[c2 {call}]<tool>y"


def test_results_are_user_turns_where_the_template_drops_them(make_model: MakeModel) -> None:
    template = _template(make_model, NO_RESULTS)
    assert template.rules.tools
    assert not template.rules.tool_role
    rendered = _render(template, _user("a"), _calling(_call("c1")), _result("c1", "x"), _result("c2", "y"))
    assert rendered.endswith(
        "<user><tool_response>\nx\n</tool_response><user><tool_response>\ny\n</tool_response>"
    )


@pytest.mark.parametrize("text", [NATIVE, ALTERNATING, STRICT, ONE_CALL, NO_RESULTS])
def test_any_order_of_roles_is_rendered_with_all_its_words(make_model: MakeModel, text: str) -> None:
    turns = (
        Turn(role="system", content=("w0",)), _user("w1"), Turn(role="system", content=("w2",)),
        _calling(_call("c1", '{"k": "w3"}'), _call("c2", "w4"), text="w5"), _result("c2", "w6"), _user("w7"),
        _result("c1", "w8"), _calling(text="w9"), Turn(role="assistant"), Turn(role="system", content=("w10",)),
    )  # fmt: skip
    rendered = _render(_template(make_model, text), *turns, tools=(TOOL,))
    assert [f"w{number}" for number in range(11) if f"w{number}" not in rendered] == []
    assert "Looks." in rendered
