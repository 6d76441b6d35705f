"""Environment `python-tool`: a problem, several turns, and a tool that runs Python.

In go rows of --data, or products of its own where there is none; a reply that calls the tool gets
what the code printed, any other reply is the answer and is graded as in `verify`. The code
runs in `python_sandbox`, each call afresh.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from inspect import isawaitable
from typing import Any, Final, Literal

from molt_core.api import columns
from molt_core.api.environment import Opening, Reply, Row, Score, Step
from molt_plugin_envs.arithmetic import Arithmetic
from molt_plugin_envs.python_sandbox import Output, run_python
from molt_plugin_envs.rewards import Rewards
from molt_plugin_envs.spec import ArithmeticOptions, PythonToolOptions
from molt_plugin_envs.verify import with_system

BOXED: Final = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Run a Python program and return what it prints. Nothing is kept between calls.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "the program; use print()"}},
            "required": ["code"],
        },
    },
}


class PythonTool:
    def __init__(self, options: PythonToolOptions) -> None:
        self._options = options
        self._rewards = Rewards(options)
        self._row: Row = {}
        self._num_turns = self._num_calls = self._num_failed = 0

    def tasks(self, split: Literal["train", "eval"], seed: int) -> Iterator[Row]:
        """Products of two numbers, held out for evaluation as in `arithmetic`."""
        products = Arithmetic(ArithmeticOptions(digits=self._options.digits, operations=("*",), system=""))
        for row in products.tasks(split, seed):
            yield {"prompt": f"What is {row['a']} * {row['b']}?", "answer": str(row["answer"])}

    def reset(self, row: Row) -> Opening:
        self._row = row
        return Opening(messages=with_system(columns.messages(row), self._options.system), tools=[TOOL])

    async def step(self, reply: Reply) -> Step:
        self._num_turns += 1
        boxed = BOXED.findall(reply.text)
        # a message may hold both: then the answer counts and nothing is run. What was cut off is graded as it stands
        if boxed or reply.truncated or not reply.tool_calls:
            return await self._graded(boxed[-1] if boxed else reply.text, reply)
        if self._num_turns == self._options.max_turns:
            return Step(done=True, truncated=True, info=self._info())
        results = await asyncio.gather(*(self._result(call) for call in reply.tool_calls))
        self._num_calls += len(results)
        self._num_failed += sum(result.failed for result in results)
        messages = [
            {"role": "tool", "tool_call_id": call.id, "content": result.text or "(nothing was printed)"}
            for call, result in zip(reply.tool_calls, results, strict=True)
        ]
        return Step(messages=messages, info=self._info())

    def close(self) -> None:
        """Nothing is kept between calls."""

    async def _graded(self, text: str, reply: Reply) -> Step:
        graded: Any = await asyncio.to_thread(self._rewards.grade, text, self._row, reply)
        if isawaitable(graded):
            graded = await graded
        score = graded if isinstance(graded, Score) else Score(reward=graded)
        return Step(reward=score.reward, done=True, info={**self._info(), **score.info})

    async def _result(self, call: Any) -> Output:
        """What a call printed, or what is wrong with it: the policy reads both."""
        if call.name != "python":
            return Output(f"error: there is no tool {call.name!r}, only python", True)
        try:
            code = json.loads(call.arguments)["code"]
        except (ValueError, TypeError, KeyError) as wrong:
            return Output(
                f'error: {type(wrong).__name__}: {wrong}; wanted arguments like {{"code": "print(1)"}}', True
            )
        if not isinstance(code, str):
            return Output(f"error: code is of type {type(code).__name__}, wanted a string", True)
        return await run_python(code, self._options)

    def _info(self) -> dict[str, float]:
        return {
            "turns": float(self._num_turns),
            "tool_calls": float(self._num_calls),
            "tool_errors": float(self._num_failed),
        }
