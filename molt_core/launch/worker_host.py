"""The process of one worker: environment or agent, the gateway they talk to, and calls to the engines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

from molt_core.api.environment import Message
from molt_core.api.executor import Handle, Store
from molt_core.api.gateway import Gateway, GatewayContext
from molt_core.experience import Rollout, RolloutSummary
from molt_core.experience.codec import decode, encode
from molt_core.experience.rollout import summarize
from molt_core.loop.agent_rollout import run_agent
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.single_turn import run_rollout
from molt_core.loop.turn_rollout import run_turns
from molt_core.plan.plan import Plan

NUM_THREADS = 256
"""Of the default pool, made as needed. Many, because agents may block theirs while they wait for a reply."""

RunRollout = Callable[..., Awaitable[Rollout]]


class WorkerHost:
    def __init__(self, store: Store, plan_json: str, context: Mapping[str, Any]) -> None:
        self._store = store
        self._plan = Plan.from_json(plan_json)
        self._context = GatewayContext(**context)
        self._engines: dict[int, Handle] = {}
        self._gateway: Gateway | None = None
        if "gateways" in self._plan.parts:
            self._gateway = self._plan.one("gateways").build(self._context)

    async def start(self) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(NUM_THREADS, "worker"))
        if self._gateway is not None:
            await self._gateway.start()
        self._run = await asyncio.to_thread(self._runner)

    async def connect(self, key: int, engine: Handle) -> None:
        """Where requests of later rollouts for engine `key` go."""
        self._engines[key] = engine

    async def sample(self, request: RolloutRequest, engine: int) -> RolloutSummary:
        rollout = await self._run(request, generate=partial(self._engines[engine].call, "generate"))
        kept = rollout.segments or rollout.left_out
        return summarize(rollout, self._store.put(encode(rollout)) if kept else None)

    async def texts(self, payload: Any) -> dict[str, Any]:
        """Whole texts of a rollout that `sample` returned, each segment with its special tokens."""
        return await asyncio.to_thread(self._texts, payload)

    def _texts(self, payload: Any) -> dict[str, Any]:
        rollout = decode(self._store.get(payload))
        return {
            "prompt": rollout.prompt_text,
            "reply": rollout.reply_text,
            "segments": [self._chat.transcript(segment.token_ids.tolist()) for segment in rollout.segments],
        }

    async def stop(self) -> None:
        """Threads of hung graders end with the process."""
        if self._gateway is not None:
            await self._gateway.stop()

    @cached_property
    def _chat(self) -> HuggingFaceChat:
        return HuggingFaceChat(self._context.model_folder)

    def _runner(self) -> RunRollout:
        """How rollouts of this plan are run: by an agent, an environment of several turns, or of one."""
        plan, gateway = self._plan, self._gateway
        timeout_s = plan.run_options().env_timeout_s
        environment, agent = plan.first("envs"), plan.first("agents")
        if gateway is None:
            return partial(
                run_rollout, environment=plan.one("envs").build(), chat=HuggingFaceChat(self._context.model_folder),
                max_length=self._context.max_length, env_timeout_s=timeout_s,
            )  # fmt: skip
        if agent is None:
            make = plan.one("envs").maker()
            return partial(run_turns, make_environment=make, gateway=gateway, env_timeout_s=timeout_s)
        grader = environment.build() if environment else None
        return partial(
            run_agent, make_agent=agent.maker(), environment=grader, gateway=gateway, env_timeout_s=timeout_s
        )


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

    def transcript(self, token_ids: Sequence[int]) -> str:
        """Text with special tokens."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=False)
        return text
