"""Environment `arithmetic`: sums of random whole numbers.

One problem in five is held out for evaluation, the same ones whatever the seed, and never
trained on; `3+4` and `4+3` fall on the same side. The reward is 1 when the reply came to its
own end and its last number is right, else 0: asking for a bare number as well would leave an
untrained small model without a single reward to learn from.
"""

from __future__ import annotations

import operator
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from molt_core.api.environment import Message, Reply, Row
from molt_plugin_envs.numbers import last_number
from molt_plugin_envs.spec import ArithmeticOptions

COMPUTE: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
HELD_OUT: Final = 5
"""One problem in this many is for evaluation."""
ROUND: Final = 4096
"""Most distinct problems that are drawn before a problem may return; evaluation has one round."""


class Arithmetic:
    def __init__(self, options: ArithmeticOptions) -> None:
        self._operations = options.operations
        self._limit: int = 10**options.digits
        self._system = options.system

    def tasks(self, split: str, seed: int) -> Iterator[Row]:
        """`{a, operation, b, answer}`. Training goes on for ever; evaluation never repeats a problem."""
        draw = random.Random(f"{split}/{seed}")
        space = range(len(self._operations) * self._limit**2)
        while True:
            for number in draw.sample(space, min(len(space), ROUND)):
                row = self._problem(number)
                if held_out(row) == (split == "eval"):
                    yield row
            if split == "eval":
                return

    def prompt(self, row: Row) -> list[Message]:
        question = f"What is {row['a']}{row['operation']}{row['b']}? Answer with just the number."
        system: list[Message] = [{"role": "system", "content": self._system}] if self._system else []
        return [*system, {"role": "user", "content": question}]

    def score(self, row: Row, reply: Reply) -> float:
        return float(not reply.truncated and last_number(reply.text) == row["answer"])

    def _problem(self, number: int) -> Row:
        """Problem `number` of the space of all problems."""
        rest, b = divmod(number, self._limit)
        which, a = divmod(rest, self._limit)
        operation = self._operations[which]
        return {"a": a, "operation": operation, "b": b, "answer": COMPUTE[operation](a, b)}


def held_out(row: Row) -> bool:
    """Whether a problem is for evaluation only. Depends on nothing but the problem."""
    numbers = (row["a"], row["b"]) if row["operation"] == "-" else sorted((row["a"], row["b"]))
    key = f"{numbers[0]}{row['operation']}{numbers[1]}"
    return zlib.crc32(key.encode()) % HELD_OUT == 0
