"""One rollout of a multi-turn environment: reset, then reply and step in turn, until it is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from molt_core.api.agent import ChatReply
from molt_core.api.environment import Opening, Reply, Step, TurnEnvironment
from molt_core.api.gateway import Capture, Gateway, Generate, RecordedSession
from molt_core.experience import Rollout, TurnReward
from molt_core.loop.draft import Draft
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.session_rollout import close, run_in_session
from molt_core.loop.user_code import Excluded, failed, numbers_of, score_of, user_code

ERROR = "env_error"


async def run_turns(
    request: RolloutRequest, *, make_environment: Callable[[], TurnEnvironment], gateway: Gateway, generate: Generate,
    env_timeout_s: float,
) -> Rollout:  # fmt: skip
    """Run one episode within the rollout's deadline; the environment is made for it, and closed after it.

    Args:
        env_timeout_s: seconds that one call of the environment may take.

    Raises:
        RunError: the engine is gone.
    """

    async def call(function: Callable[..., Any], *args: object) -> Any:
        return await user_code(ERROR, function, *args, timeout_s=env_timeout_s)

    async def play(draft: Draft, session: RecordedSession) -> None:
        draft.doing = "making the environment"
        environment = await call(make_environment)
        try:
            rewards = await _episode(draft, session, environment, call)
        finally:
            try:
                await call(environment.close)
            except Excluded as excluded:
                draft.notes.append(f"close() of the environment failed: {excluded.detail}")
        capture = await close(draft, session)
        draft.truncated |= capture.truncated
        draft.turn_rewards = _placed(rewards, capture)
        draft.score = score_of(math.fsum(rewards.values()), "the environment")

    return await run_in_session(request, play, gateway=gateway, generate=generate)


async def _episode(
    draft: Draft, session: RecordedSession, environment: TurnEnvironment, call: Callable[..., Any]
) -> dict[int, float]:
    """Rewards by sample."""
    draft.doing = "resetting the environment"
    opening = await call(environment.reset, draft.request.task.row)
    if not isinstance(opening, Opening):
        opening = Opening(messages=opening)
    messages = _messages("reset", opening.messages)
    if not messages:
        raise failed(ERROR, "reset() gave no messages, so there is nothing to reply to")
    rewards: dict[int, float] = {}
    while True:
        draft.doing = f"waiting for reply {len(rewards) + 1}"
        # messages come from the environment, so what is wrong with them is its error
        reply: ChatReply = await user_code(ERROR, partial(session.chat, messages, tools=opening.tools))
        if reply.num_tokens == 0:
            draft.truncated = True
            return rewards
        draft.doing = f"in step {len(rewards) + 1} of the environment"
        step = await call(environment.step, _reply(reply, session))
        if not isinstance(step, Step):
            raise failed(ERROR, f"step() returned {step!r} of type {type(step).__name__}, wanted a Step")
        rewards[reply.sample_id] = score_of(step.reward, "step()", ERROR).reward or 0.0
        draft.info.update(numbers_of(step.info, "step()", ERROR))
        draft.truncated |= step.truncated
        if step.done or step.truncated or reply.finish_reason == "length":
            return rewards
        following = _messages("step", step.messages)
        if not following:
            raise failed(ERROR, "step() gave no messages, and did not say that the task is done")
        messages += [reply.message, *following]


def _messages(method: str, given: object) -> list[Mapping[str, Any]]:
    if not isinstance(given, Sequence) or not all(isinstance(message, Mapping) for message in given):
        raise failed(
            ERROR, f"{method}() gave messages of type {type(given).__name__}, wanted a list of messages"
        )
    return list(given)


def _reply(reply: ChatReply, session: RecordedSession) -> Reply:
    return Reply(
        text=reply.text,
        truncated=reply.finish_reason == "length",
        num_tokens=reply.num_tokens,
        reasoning=reply.reasoning,
        tool_calls=reply.tool_calls,
        judge=session.judge,
    )


def _placed(rewards: Mapping[int, float], capture: Capture) -> tuple[TurnReward, ...]:
    """Rewards at the last tokens of their samples; none where a sample does not train."""
    if not rewards.keys() <= capture.ends.keys():
        return ()
    places = {sample: capture.ends[sample] for sample in rewards}
    return tuple(
        TurnReward(segment=place.segment, token=place.token, reward=rewards[sample])
        for sample, place in places.items()
    )
