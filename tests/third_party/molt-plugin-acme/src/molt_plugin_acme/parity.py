"""Is a number even? The smallest task with a right answer. Multiples of 7 are held out for evaluation."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Literal

from molt_core.api.environment import Message, Reply, Row
from molt_plugin_acme.spec import ParityOptions


class Parity:
    def __init__(self, options: ParityOptions) -> None:
        self.largest = options.largest

    def tasks(self, split: Literal["train", "eval"], seed: int) -> Iterator[Row]:
        """Endless; the splits share no number."""
        numbers = [n for n in range(self.largest + 1) if (n % 7 == 0) == (split == "eval")]
        draw = random.Random(seed)
        while True:
            yield {"number": draw.choice(numbers)}

    def prompt(self, row: Row) -> list[Message]:
        return [{"role": "user", "content": f"Is {row['number']} even? Answer yes or no."}]

    def score(self, row: Row, reply: Reply) -> float:
        """1 if the last yes or no of the reply is right, else 0."""
        said = re.findall(r"\b(yes|no)\b", reply.text.lower())
        right = "yes" if row["number"] % 2 == 0 else "no"
        return float(said[-1:] == [right])
