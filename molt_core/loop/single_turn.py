"""One rollout in a worker: render the task's conversation, sample one reply, grade it.

In go an environment, an engine and the chat rendering; out comes a `Rollout` of exactly the
tokens that the engine was given and returned. What goes wrong with this rollout is its
outcome, with a reason. Only a lost engine (RunError) is raised: that concerns the whole run.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from molt_core.api.agent import text_of
from molt_core.api.engine import GenerateRequest
from molt_core.api.environment import Environment, Message, Reply
from molt_core.api.gateway import Generate
from molt_core.experience import Rollout, Segment
from molt_core.loop.draft import Draft, run_within_deadline
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.user_code import failed, score_of, user_code


class Chat(Protocol):
    """Tokenizer and chat template of the model."""

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the conversation up to where the assistant's reply begins."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens."""
        ...


async def run_rollout(
    request: RolloutRequest, *, environment: Environment, generate: Generate, chat: Chat, max_length: int,
    env_timeout_s: float,
) -> Rollout:  # fmt: skip
    """Run one rollout within its deadline.

    Args:
        env_timeout_s: seconds that one call of the environment may take.

    Raises:
        RunError: the engine is gone.
    """
    draft = Draft(request)
    return await run_within_deadline(
        draft, _converse(draft, environment, draft.watched(generate), chat, max_length, env_timeout_s)
    )


async def _converse(
    draft: Draft,
    environment: Environment,
    generate: Generate,
    chat: Chat,
    max_length: int,
    env_timeout_s: float,
) -> None:
    request = draft.request
    row = request.task.row
    draft.doing = "making the prompt"
    messages = await user_code("prompt_error", environment.prompt, row, timeout_s=env_timeout_s)
    prompt_ids = await user_code("prompt_error", chat.render, messages)
    draft.prompt_text = text_of(messages[-1].get("content"))
    room = max_length - len(prompt_ids)
    if room < 1:
        raise failed(
            "prompt_too_long",
            f"task {request.task.task_id}: prompt of {len(prompt_ids)} tokens, max-length is {max_length}",
        )
    draft.doing = "waiting for the engine"
    generation = await generate(
        GenerateRequest(
            request_id=request.rollout_id,
            token_ids=prompt_ids,
            max_tokens=min(request.max_tokens, room),
            temperature=request.temperature,
            seed=request.seed,
            top_logprobs=request.top_logprobs,
        )
    )
    draft.segments = (
        Segment.from_turn(
            prompt_ids, generation.token_ids, generation.logprobs, generation.versions,
            top_ids=generation.top_ids, top_logprobs=generation.top_logprobs,
        ),
    )  # fmt: skip
    draft.truncated = generation.finish_reason == "length"
    draft.reply_text = chat.decode(generation.token_ids.tolist())
    reply = Reply(
        text=draft.reply_text,
        truncated=draft.truncated,
        num_tokens=len(generation.token_ids),
        judge=_judge(request, generate, chat, max_length),
    )
    draft.doing = "grading the reply"
    graded = await user_code("reward_error", environment.score, row, reply, timeout_s=env_timeout_s)
    draft.score = score_of(graded)


def _judge(
    request: RolloutRequest, generate: Generate, chat: Chat, max_length: int
) -> Callable[..., Awaitable[str]]:
    """As `Session.judge`, for graders of a rollout without a session."""
    numbers = itertools.count()

    async def judge(
        messages: str | Sequence[Message], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> str:
        asked: Sequence[Message] = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        )
        prompt_ids = await asyncio.to_thread(chat.render, asked)
        generation = await generate(
            GenerateRequest(
                request_id=f"{request.rollout_id}/judge-{next(numbers)}",
                token_ids=prompt_ids,
                # an engine refuses a prompt that leaves no room, and says so
                max_tokens=max(1, min(max_tokens, max_length - len(prompt_ids))),
                temperature=temperature,
                seed=request.seed,
            )
        )
        return chat.decode(generation.token_ids.tolist())

    return judge
