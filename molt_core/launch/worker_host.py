"""The process of one environment worker: tokenizer, environment, and calls to the engines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from molt_core.api.environment import Environment, Message
from molt_core.api.executor import Handle, Store
from molt_core.experience import RolloutSummary
from molt_core.experience.codec import encode
from molt_core.experience.rollout import summarize
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.single_turn import run_rollout
from molt_core.plan.plan import Plan

NUM_THREADS = 64
"""For prompts and graders. Many, because one that hangs keeps its thread until it returns."""


class WorkerHost:
    def __init__(self, store: Store, plan_json: str, model_folder: str, max_length: int) -> None:
        self._store = store
        self._environment: Environment = Plan.from_json(plan_json).one("envs").build()
        self._max_length = max_length
        self._model_folder = model_folder
        self._engines: Sequence[Handle] = ()

    async def start(self, engines: Sequence[Handle]) -> None:
        self._engines = engines
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(NUM_THREADS, "environment"))
        self._chat = await asyncio.to_thread(HuggingFaceChat, self._model_folder)

    async def sample(self, request: RolloutRequest, engine: int) -> RolloutSummary:
        handle = self._engines[engine]
        rollout = await run_rollout(
            request,
            environment=self._environment,
            generate=lambda generate_request: handle.call("generate", generate_request),
            chat=self._chat,
            max_length=self._max_length,
        )
        return summarize(rollout, self._store.put(encode(rollout)) if rollout.segments else None)

    async def stop(self) -> None:
        """Nothing to end here; threads of hung graders end with the process."""


class HuggingFaceChat:
    """Tokenizer and chat template of the model folder."""

    def __init__(self, model_folder: str) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_folder)

    def render(self, messages: Sequence[Message]) -> list[int]:
        # the template writes its own special tokens; adding more would double the first one
        text = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text
