"""An engine that says what a script tells it to: real tokenizer and limits, made-up log-probs.

For tests of agents and gateways, where it matters what was said and which tokens came of it, and
not how likely they were. Schemas are left to the script. Needs the package tokenizers.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

from molt_core.api.engine import GenerateRequest, Generation, Weights, reply_limit
from molt_core.testing.fakes import made_up_top

Said = str | Exception
Script = Callable[[str, int], Said | Awaitable[Said]]


class ScriptedEngine:
    """An `Engine`.

    Args:
        tokenizer_folder: holds tokenizer.json.
        script: from the prompt's text (special tokens included) and the number of the call, from 0, to what
            the policy says, or the exception that the call raises; may be async. What it says is ended by the
            end token where there is room.
        delay_s: seconds that each call takes, beside what an async script takes.
    """

    def __init__(
        self, tokenizer_folder: str | Path, script: Script, *, end_token_id: int, max_length: int = 131_072,
        delay_s: float = 0.0,
    ) -> None:  # fmt: skip
        from tokenizers import Tokenizer

        self.version = 0
        self.record: list[tuple[GenerateRequest, Generation]] = []
        """Every call that was answered, in order of the answers."""
        self.num_calls = 0
        self.num_in_flight = 0
        self._tokenizer: Any = Tokenizer.from_file(str(Path(tokenizer_folder) / "tokenizer.json"))
        self._script = script
        self._end_token_id = end_token_id
        self._max_length = max_length
        self._delay_s = delay_s

    async def start(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> Generation:
        limit = reply_limit(
            request, max_length=self._max_length, vocabulary_size=self._tokenizer.get_vocab_size()
        )
        number, version = self.num_calls, self.version
        self.num_calls += 1
        self.num_in_flight += 1
        try:
            said = self._script(self._text(list(request.token_ids)), number)
            if inspect.isawaitable(said):
                said = await said
            await asyncio.sleep(self._delay_s)
        finally:
            self.num_in_flight -= 1
        if isinstance(said, Exception):
            raise said
        full = [*self._tokenizer.encode(said, add_special_tokens=False).ids, self._end_token_id]
        whole = self._stopped(full, request.stop)
        token_ids = whole[:limit]
        rng = np.random.default_rng(number)
        logprobs = -rng.exponential(size=len(token_ids))
        # an update in mid-request shows in the second half
        versions = [
            version if 2 * place < len(token_ids) else self.version for place in range(len(token_ids))
        ]
        generation = Generation(
            token_ids=token_ids,
            logprobs=logprobs,
            versions=versions,
            finish_reason="stop" if len(whole) <= limit else "length",
            **made_up_top(token_ids, logprobs, request.top_logprobs),
        )
        self.record.append((request, generation))
        return generation

    async def update_weights(self, weights: Weights, *, drain: bool) -> None:
        self.version = weights.version

    async def check_health(self) -> None: ...

    async def stop(self) -> None: ...

    def _text(self, token_ids: list[int]) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=False))

    def _stopped(self, token_ids: list[int], stop: tuple[str, ...]) -> list[int]:
        if not any(each in self._text(token_ids) for each in stop):
            return token_ids
        for length in range(1, len(token_ids)):
            if any(each in self._text(token_ids[:length]) for each in stop):
                return token_ids[:length]
        return token_ids
