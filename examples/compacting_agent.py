"""An agent that rewrites its own history: plan, shorten the plan, then begin anew with the short one.

The second request extends the first, so both share one segment of tokens. The third starts from
another prompt, so it begins a second segment. Both train with the one reward, and every token
that the policy sampled trains once. Run by compacting_agent.toml.
"""

from __future__ import annotations

from molt_core.api.agent import AgentTask, Result, Session


async def solve(task: AgentTask, session: Session) -> Result:
    history = [{"role": "user", "content": f"{task.prompt} How would you work it out?"}]
    plan = await session.chat(history)
    history += [plan.message, {"role": "user", "content": "Say that in five words."}]
    summary = await session.chat(history)
    compacted = [{"role": "user", "content": f"{task.prompt} Plan: {summary.text} Answer with the number."}]
    answer = await session.chat(compacted)
    return Result(text=answer.text, info={"summary_tokens": summary.num_tokens})
