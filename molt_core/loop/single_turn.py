"""One rollout in a worker: render the task's conversation, sample one reply, grade it.

In go an environment, an engine and the chat rendering; out comes a `Rollout` of exactly the
tokens that the engine was given and returned. What goes wrong with this rollout is its
outcome, with a reason. Only a lost engine (RunError) is raised: that concerns the whole run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from attrs import evolve

from molt_core.api.engine import GenerateRequest, Generation
from molt_core.api.environment import Environment, Message, Reply, Score
from molt_core.errors import RunError
from molt_core.experience import Outcome, Rollout, Segment
from molt_core.experience.checks import violations
from molt_core.loop.ports import RolloutRequest

Generate = Callable[[GenerateRequest], Awaitable[Generation]]


class Chat(Protocol):
    """Tokenizer and chat template of the model."""

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the conversation up to where the assistant's reply begins."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens."""
        ...


class _Excluded(Exception):
    """This rollout does not train; carries outcome and reason, the cause as its `__cause__`."""

    def __init__(self, outcome: Outcome, reason: str, detail: str) -> None:
        self.outcome = outcome
        self.reason = reason
        self.detail = detail
        super().__init__(detail)


async def run_rollout(
    request: RolloutRequest, *, environment: Environment, generate: Generate, chat: Chat, max_length: int
) -> Rollout:
    """Run one rollout within its deadline.

    Raises:
        RunError: the engine is gone.
    """
    started = asyncio.get_running_loop().time()
    draft = _Draft(request)
    try:
        async with asyncio.timeout(request.timeout_s):
            await _converse(draft, environment, generate, chat, max_length)
        rollout = draft.finished()
        if broken := violations(rollout):
            raise _Excluded(Outcome.FAILED, "invalid_rollout", "; ".join(broken))
    except _Excluded as excluded:
        rollout = draft.excluded(excluded.outcome, excluded.reason, excluded.detail)
    except TimeoutError:
        detail = f"no result within {request.timeout_s:g} s, while {draft.doing}"
        rollout = draft.excluded(Outcome.FAILED, "timeout", detail)
    return evolve(rollout, seconds=asyncio.get_running_loop().time() - started)


class _Draft:
    """What is known of the rollout so far, so that a failure loses nothing."""

    def __init__(self, request: RolloutRequest) -> None:
        self.request = request
        self.doing = "starting"
        self.segments: tuple[Segment, ...] = ()
        self.prompt_text = ""
        self.reply = Reply(text="", truncated=False, num_tokens=0)
        self.score = Score(reward=None)

    def finished(self) -> Rollout:
        outcome = Outcome.TRUNCATED if self.reply.truncated else Outcome.FINISHED
        return self._rollout(outcome, reward=self.score.reward, reason="", detail="")

    def excluded(self, outcome: Outcome, reason: str, detail: str) -> Rollout:
        return self._rollout(outcome, reward=None, reason=reason, detail=detail)

    def _rollout(self, outcome: Outcome, *, reward: float | None, reason: str, detail: str) -> Rollout:
        return Rollout(
            rollout_id=self.request.rollout_id,
            group_id=self.request.group_id,
            segments=self.segments,
            outcome=outcome,
            reward=reward,
            reason=reason,
            detail=detail,
            info=dict(self.score.info),
            prompt_text=self.prompt_text,
            reply_text=self.reply.text,
        )


async def _converse(
    draft: _Draft, environment: Environment, generate: Generate, chat: Chat, max_length: int
) -> None:
    request = draft.request
    draft.doing = "making the prompt"
    messages = await _user_code("prompt_error", environment.prompt, request.task.row)
    draft.prompt_text = messages[-1]["content"] if messages else ""
    prompt_ids = await _user_code("prompt_error", chat.render, messages)
    room = max_length - len(prompt_ids)
    if room < 1:
        raise _Excluded(
            Outcome.FAILED, "prompt_too_long",
            f"task {request.task.task_id}: prompt of {len(prompt_ids)} tokens, max-length is {max_length}",
        )  # fmt: skip
    draft.doing = "waiting for the engine"
    generation = await generate(
        GenerateRequest(
            request_id=request.rollout_id,
            token_ids=prompt_ids,
            max_tokens=min(request.max_tokens, room),
            temperature=request.temperature,
            seed=request.seed,
        )
    )
    draft.segments = (
        Segment.from_turn(prompt_ids, generation.token_ids, generation.logprobs, generation.versions),
    )
    draft.reply = Reply(
        text=chat.decode(generation.token_ids.tolist()),
        truncated=generation.finish_reason == "length",
        num_tokens=len(generation.token_ids),
    )
    draft.doing = "grading the reply"
    graded = await _user_code("reward_error", environment.score, request.task.row, draft.reply)
    draft.score = _score(graded)


async def _user_code(reason: str, function: Callable[..., Any], *args: object) -> Any:
    """Call a plugin's or user's function, blocking or async, off the event loop."""
    try:
        result = await asyncio.to_thread(function, *args)
        if isinstance(result, Awaitable):
            result = await result
    except RunError:
        raise
    # isolation point: user code may raise anything, and it concerns this rollout alone
    except Exception as error:
        raise _Excluded(
            Outcome.FAILED, reason, f"{type(error).__name__}: {error} {_place(error)}".rstrip()
        ) from error
    return result


def _place(error: Exception) -> str:
    """`(file:line)` of the innermost frame of the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace else ""


def _score(graded: object) -> Score:
    """Check what a grader returned. None, NaN and infinite abstain; another type is an error."""
    score = graded if isinstance(graded, Score) else Score(reward=_number(graded))
    reward = _number(score.reward)
    if reward is None:
        raise _Excluded(Outcome.ABSTAINED, "abstained", "the grader returned None")
    if not math.isfinite(reward):
        raise _Excluded(Outcome.ABSTAINED, "reward_not_finite", f"the grader returned {reward}")
    return Score(reward=reward, info=score.info)


def _number(value: object) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)  # type: ignore[arg-type]  # numpy and torch scalars have __float__
    except (TypeError, ValueError) as error:
        raise _Excluded(
            Outcome.FAILED, "reward_error",
            f"the grader returned {value!r} of type {type(value).__name__}, wanted a number, a Score or None",
        ) from error  # fmt: skip
