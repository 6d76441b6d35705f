"""Environment `reasoning-gym`: problems that a data set of reasoning-gym makes, graded by its own `score_answer`.

One problem in five is held out for evaluation, by its text: the same ones whatever the seed, and
never trained on, whichever seed makes them again.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from molt_core.api.environment import Message, Reply, Row
from molt_core.api.findings import error
from molt_core.errors import ConfigError
from molt_plugin_reasoning_gym.spec import CODE, ReasoningGymOptions

CHUNK: Final = 256
"""Problems of one seed. reasoning-gym makes problem i of seed s from seed s + i, so seeds are drawn far apart."""
HELD_OUT: Final = 5
MOST_MISSES: Final = 4096
"""Problems in a row that are on the other side or were there before, after which there are no more."""
TAGGED: Final = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ReasoningGym:
    def __init__(self, options: ReasoningGymOptions) -> None:
        self._options = options
        self._grader = self._data_set(seed=0, size=1)

    def tasks(self, split: str, seed: int) -> Iterator[Row]:
        """`{question, answer, metadata}` as reasoning-gym makes them; evaluation never repeats a question.

        Raises:
            ConfigError: the task can't make a problem for training.
        """
        is_eval = split == "eval"
        draw = random.Random("eval" if is_eval else f"train/{seed}")
        seen: set[str] = set()
        misses = 0
        while misses < MOST_MISSES:
            for entry in self._data_set(seed=draw.randrange(2**31), size=CHUNK):
                question = entry["question"]
                if held_out(question) != is_eval or question in seen:
                    misses += 1
                    continue
                misses = 0
                if is_eval:
                    seen.add(question)
                yield dict(entry)
        if not is_eval:
            raise self._wrong(f"made {misses} problems that are all held out for evaluation")

    def prompt(self, row: Row) -> list[Message]:
        system: list[Message] = (
            [{"role": "system", "content": self._options.system}] if self._options.system else []
        )
        return [*system, {"role": "user", "content": row["question"]}]

    def score(self, row: Row, reply: Reply) -> float:
        return float(self._grader.score_answer(self._answer(reply.text), entry=dict(row)))

    def _answer(self, text: str) -> str | None:
        """None where there is no answer; reasoning-gym says what that is worth."""
        if self._options.answer == "text":
            return text.strip()
        tagged = TAGGED.findall(text)
        return tagged[-1].strip() if tagged else None

    def _data_set(self, *, seed: int, size: int) -> Any:
        from reasoning_gym.factory import DATASETS, create_dataset

        name = self._options.task
        if name not in DATASETS:
            close = get_close_matches(name, DATASETS, n=1)
            raise self._wrong(
                "is unknown", f"did you mean {close[0]}?" if close else ", ".join(sorted(DATASETS))
            )
        config = json.loads(self._options.config)
        try:
            return create_dataset(name, **{**config, "seed": seed, "size": size})
        # each data set checks its own configuration, and they raise what they like
        except Exception as problem:
            raise self._wrong(
                f"can't be made of {config}: {type(problem).__name__}: {problem}", "--env.config '{...}'"
            ) from problem

    def _wrong(self, what: str, fix: str = "") -> ConfigError:
        return ConfigError([error(CODE, f"the reasoning-gym task {self._options.task!r} {what}", fix=fix)])


def held_out(question: str) -> bool:
    """Whether a problem is for evaluation only. Depends on nothing but its text."""
    return zlib.crc32(question.encode()) % HELD_OUT == 0
