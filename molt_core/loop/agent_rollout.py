"""One rollout of an agent: it runs, and what it leaves is graded by itself or by an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from molt_core.api import columns
from molt_core.api.agent import Agent, AgentTask, Result
from molt_core.api.environment import Environment, Reply
from molt_core.api.gateway import Capture, Gateway, Generate, RecordedSession
from molt_core.experience import Rollout
from molt_core.loop.draft import Draft
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.session_rollout import close, run_in_session
from molt_core.loop.user_code import UNWIND_S, Excluded, failed, numbers_of, score_of, user_code


async def run_agent(
    request: RolloutRequest, *, make_agent: Callable[[], Agent], environment: Environment | None, gateway: Gateway,
    generate: Generate, env_timeout_s: float,
) -> Rollout:  # fmt: skip
    """Run one agent within the rollout's deadline.

    Args:
        environment: makes the opening conversation and grades results without a reward; None: rows
            hold the conversation, and a result without a reward abstains.
        env_timeout_s: seconds that one call of the environment may take.

    Raises:
        RunError: the engine is gone.
    """

    async def play(draft: Draft, session: RecordedSession) -> None:
        row = request.task.row
        draft.doing = "preparing the agent"
        opening = environment.prompt if environment else columns.opening
        task = AgentTask(
            task_id=request.task.task_id,
            row=row,
            messages=tuple(await user_code("prompt_error", opening, row, timeout_s=env_timeout_s)),
            tools=await user_code("prompt_error", columns.tools, row),
            timeout_s=request.timeout_s,
        )
        agent = await user_code("agent_error", make_agent)
        try:
            await run_and_grade(agent, task, draft, session)
        finally:
            await _close(agent, draft)

    async def run_and_grade(agent: Agent, task: AgentTask, draft: Draft, session: RecordedSession) -> None:
        draft.doing = "running the agent"
        result = _result(await user_code("agent_error", agent.run, task, session))
        draft.info.update(numbers_of(result.info, "the agent", "agent_error"))
        draft.reply_text = result.text or ""
        capture = await close(draft, session)
        draft.truncated = capture.truncated or result.truncated
        if result.reward is not None or environment is None:
            draft.score = score_of(result.reward, "the agent", "agent_error")
            return
        draft.doing = "grading the result"
        reply = _reply(result, capture, draft, session)
        graded = await user_code("reward_error", environment.score, task.row, reply, timeout_s=env_timeout_s)
        draft.score = score_of(graded)

    return await run_in_session(request, play, gateway=gateway, generate=generate)


async def _close(agent: Agent, draft: Draft) -> None:
    if (end := getattr(agent, "close", None)) is not None:
        try:
            await user_code("agent_error", end, timeout_s=UNWIND_S)
        except Excluded as excluded:
            draft.notes.append(f"close() of the agent failed: {excluded.detail}")


def _result(returned: Any) -> Result:
    """What an agent may return: a `Result`, a number, or None."""
    # a number of any kind; what is none is refused when the reward is looked at
    result = returned if isinstance(returned, Result) else Result(reward=returned)
    if not isinstance(result.text, str | None):
        raise failed("agent_error", f"the text of the agent's result is {result.text!r}, wanted a string")
    return result


def _reply(result: Result, capture: Capture, draft: Draft, session: RecordedSession) -> Reply:
    return Reply(
        text=capture.reply_text if result.text is None else result.text,
        truncated=draft.truncated,
        num_tokens=sum(segment.num_sampled for segment in capture.segments),
        workspace=result.workspace,
        judge=session.judge,
    )
