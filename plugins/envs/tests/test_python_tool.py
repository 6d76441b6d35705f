"""The dialogue of `python-tool`: calls are run, an answer is graded, and every limit is one of the episode."""

from __future__ import annotations

import asyncio
import json
from itertools import islice

import pytest
from molt_plugin_envs.python_tool import TOOL, PythonTool
from molt_plugin_envs.sandbox_child import gap
from molt_plugin_envs.spec import PythonToolOptions

from molt_core.api.agent import ToolCall
from molt_core.api.environment import Reply, Step

UNCONFINED = bool(gap())


def environment(**options: object) -> PythonTool:
    made = PythonTool(PythonToolOptions(unconfined=UNCONFINED, **options))
    made.reset({"prompt": "What is 6 * 7?", "answer": "42"})
    return made


def said(text: str = "", *calls: str, name: str = "python", truncated: bool = False) -> Reply:
    made = tuple(
        ToolCall(id=f"call_{n}", name=name, arguments=arguments) for n, arguments in enumerate(calls)
    )
    return Reply(text=text, truncated=truncated, num_tokens=5, tool_calls=made)


def code(text: str) -> str:
    return json.dumps({"code": text})


def steps(made: PythonTool, *replies: Reply) -> list[Step]:
    async def play() -> list[Step]:
        return [await made.step(reply) for reply in replies]

    return asyncio.run(play())


def test_a_call_is_run_and_the_next_reply_is_graded() -> None:
    first, last = steps(environment(), said("", code("print(6 * 7)")), said("So it is 42."))
    assert first.messages == [{"role": "tool", "tool_call_id": "call_0", "content": "42"}]
    assert (first.done, first.reward) == (False, 0.0)
    assert (last.done, last.reward, last.truncated) == (True, 1.0, False)
    assert last.info == {"turns": 2.0, "tool_calls": 1.0, "tool_errors": 0.0}


def test_parallel_calls_are_answered_each_by_its_id() -> None:
    (step,) = steps(environment(), said("", code("print(1)"), code("pass")))
    told = [(message["tool_call_id"], message["content"]) for message in step.messages]
    assert told == [("call_0", "1"), ("call_1", "(nothing was printed)")]


def test_an_answer_wins_over_a_call_in_the_same_message() -> None:
    (step,) = steps(environment(), said(r"It is \boxed{42}, not 41.", code("print(0)")))
    assert (step.done, step.reward, step.info["tool_calls"]) == (True, 1.0, 0.0)


@pytest.mark.parametrize(
    ("text", "reward"),
    [(r"\boxed{41} or \boxed{42}", 1.0), (r"42, so \boxed{\frac{1}{2}}", 0.0), ("41", 0.0)],
)
def test_the_last_box_is_the_answer(text: str, reward: float) -> None:
    assert steps(environment(), said(text))[0].reward == reward


def test_a_call_in_the_last_turn_is_not_run_and_the_rollout_is_truncated() -> None:
    first, last = steps(environment(max_turns=2), said("", code("print(1)")), said("", code("print(2)")))
    assert not first.done
    assert (last.done, last.truncated, last.reward, last.messages) == (True, True, 0.0, ())
    assert last.info["tool_calls"] == 1.0


def test_what_was_cut_off_is_graded_and_its_calls_are_not_run() -> None:
    (step,) = steps(environment(), said("42", code("print(1)"), truncated=True))
    assert (step.done, step.reward, step.info["tool_calls"]) == (True, 1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "name", "words"),
    [
        ('{"code": "print(1', "python", "error: JSONDecodeError"),
        ('["print(1)"]', "python", "error: TypeError"),
        ('{"source": "1"}', "python", "error: KeyError: 'code'"),
        ('{"code": 1}', "python", "error: code is of type int"),
        (code("print(1)"), "bash", "error: there is no tool 'bash'"),
        (code("1/0"), "python", "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_call_is_told_to_the_policy(arguments: str, name: str, words: str) -> None:
    (step,) = steps(environment(), said("", arguments, name=name))
    assert not step.done
    assert words in step.messages[0]["content"]
    assert step.info["tool_errors"] == 1.0


def test_it_opens_with_the_tool_and_a_system_message_unless_the_row_has_one() -> None:
    made = PythonTool(PythonToolOptions())
    opening = made.reset({"messages": [{"role": "user", "content": "q"}], "answer": "1"})
    assert [message["role"] for message in opening.messages] == ["system", "user"]
    assert opening.tools == [TOOL]
    own = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    assert made.reset({"messages": own, "answer": "1"}).messages == own


def test_own_tasks_are_products_and_those_of_evaluation_are_never_trained_on() -> None:
    made = PythonTool(PythonToolOptions(digits=2))
    trained, evaluated = (
        {row["prompt"]: row["answer"] for row in islice(made.tasks(split, 0), 300)}
        for split in ("train", "eval")
    )
    assert not trained.keys() & evaluated.keys()
    for prompt, answer in trained.items():
        left, right = prompt.removeprefix("What is ").removesuffix("?").split(" * ")
        assert int(left) * int(right) == int(answer)
