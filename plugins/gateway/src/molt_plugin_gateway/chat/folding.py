"""What a chat template can't express, said in turns that it can. Pure; one fixed rule each.

Which rules a template needs is found once, by rendering probes and looking for their words in
the text. In: turns as a caller sent them. Out: turns that the template renders, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import evolve, frozen

from molt_plugin_gateway.exchange import Tool, ToolCall, Turn

SEPARATOR = "\n\n"
PROBE_TOOL = Tool(
    name="probe_tool",
    description="probe_description",
    parameters={"type": "object", "properties": {"probe_key": {"type": "string"}}, "required": ["probe_key"]},
)


@frozen(kw_only=True)
class Rules:
    """What a template can express."""

    system: bool
    """It has a system role. Otherwise the system text goes before that of the first user turn."""
    user_after_user: bool
    """Neighbouring turns of one role may stand. Otherwise they become one."""
    tools: bool
    """It shows tools and calls of tools. Otherwise `tool_fallback` says them in text."""
    tool_role: bool
    """It shows results of tools. Otherwise they are user turns."""
    short_ids: bool
    """Ids of calls must be nine letters or digits."""
    parallel_calls: bool
    """An assistant turn may hold several calls. Otherwise each gets a turn, followed by its result."""
    user_after_tool: bool
    """A user turn may follow results of tools. Otherwise its text joins the last result."""


class Render(Protocol):
    def __call__(self, turns: Sequence[Turn], tools: Sequence[Tool], *, short_ids: bool) -> str | None:
        """None where the template refuses."""
        ...


def probe(render: Render) -> Rules:
    """Which rules the template needs."""

    def shows(*turns: Turn, words: Sequence[str], tools: bool = False, short_ids: bool = False) -> bool:
        text = render(turns, (PROBE_TOOL,) if tools else (), short_ids=short_ids)
        return text is not None and all(word in text for word in words)

    def call(number: int) -> ToolCall:
        return ToolCall(
            id=f"call_{number:024}", name="probe_tool", arguments=f'{{"probe_key": "probe_value_{number}"}}'
        )

    user, later_user = (Turn(role="user", content=(text,)) for text in ("probe_user", "probe_later"))
    calling = Turn(role="assistant", tool_calls=(call(1),))
    calling_twice = Turn(role="assistant", tool_calls=(call(1), call(2)))
    results = [Turn(role="tool", content=(f"probe_result_{n}",), tool_call_id=call(n).id) for n in (1, 2)]
    called = ("probe_tool", "probe_value_1")
    with_result = (*called, "probe_result_1")
    conversation = (user, calling, results[0])
    short_ids = not shows(*conversation, words=with_result, tools=True) and shows(
        *conversation, words=with_result, tools=True, short_ids=True
    )

    def shows_tools(*turns: Turn, words: Sequence[str]) -> bool:
        return shows(*turns, words=words, tools=True, short_ids=short_ids)

    return Rules(
        system=shows(Turn(role="system", content=("probe_system",)), user, words=["probe_system"]),
        user_after_user=shows(user, later_user, words=["probe_user", "probe_later"]),
        tools=shows_tools(user, words=["probe_tool", "probe_description"])
        and (
            shows_tools(*conversation, words=called) or shows_tools(user, calling, later_user, words=called)
        ),
        tool_role=shows_tools(*conversation, words=with_result),
        short_ids=short_ids,
        parallel_calls=shows_tools(
            user, calling_twice, *results, words=(*with_result, "probe_value_2", "probe_result_2")
        ),
        user_after_tool=shows_tools(*conversation, later_user, words=(*with_result, "probe_later")),
    )


def fold(turns: Sequence[Turn], rules: Rules) -> list[Turn]:
    """Turns that a template with these rules renders."""
    turns = _one_system(turns)
    if turns and turns[0].role == "system" and not rules.system:
        turns = [evolve(turns[0], role="user"), *turns[1:]]
        if len(turns) > 1 and turns[1].role == "user":
            turns[:2] = [_joined(turns[0], turns[1])]
    if not rules.parallel_calls:
        turns = _one_call_a_turn(turns)
    folded: list[Turn] = []
    for turn in turns:
        roles = (folded[-1].role if folded else "", turn.role)
        same = roles in {("user", "user"), ("assistant", "assistant")} and not rules.user_after_user
        if same or (roles == ("tool", "user") and not rules.user_after_tool):
            folded[-1] = _joined(folded[-1], turn)
        else:
            folded.append(turn)
    return folded


def _one_system(turns: Sequence[Turn]) -> list[Turn]:
    """Leading system turns as one; a later one is a user turn."""
    num_leading = next((n for n, turn in enumerate(turns) if turn.role != "system"), len(turns))
    rest = [evolve(turn, role="user") if turn.role == "system" else turn for turn in turns[num_leading:]]
    leading = SEPARATOR.join(turn.text for turn in turns[:num_leading])
    return [Turn(role="system", content=(leading,)), *rest] if leading else rest


def _one_call_a_turn(turns: Sequence[Turn]) -> list[Turn]:
    """Each call in a turn of its own, each result behind its call."""
    split: list[Turn] = []
    for turn in turns:
        if turn.role == "tool":
            backwards = range(len(split) - 1, -1, -1)
            owner = next((n for n in backwards if _calls(split[n], turn.tool_call_id)), len(split) - 1)
            split.insert(owner + 1, turn)
        else:
            split.append(evolve(turn, tool_calls=turn.tool_calls[:1]))
            split += [Turn(role="assistant", tool_calls=(call,)) for call in turn.tool_calls[1:]]
    return split


def _calls(turn: Turn, tool_call_id: str) -> bool:
    return any(call.id == tool_call_id for call in turn.tool_calls)


def _joined(first: Turn, second: Turn) -> Turn:
    """One turn of the first one's role."""
    separator = (SEPARATOR,) if first.content and second.content else ()
    reasoning = [each.reasoning for each in (first, second) if each.reasoning is not None]
    return evolve(
        first,
        content=(*first.content, *separator, *second.content),
        reasoning=SEPARATOR.join(reasoning) if reasoning else None,
        tool_calls=first.tool_calls + second.tool_calls,
    )
