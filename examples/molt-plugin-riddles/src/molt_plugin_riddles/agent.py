"""The agent: a riddle, an answer, and if that is wrong a hint and another answer."""

from __future__ import annotations

from molt_core.api.agent import AgentTask, Result, Session
from molt_plugin_riddles.spec import RiddleOptions


class Riddles:
    def __init__(self, options: RiddleOptions) -> None:
        self._options = options

    async def run(self, task: AgentTask, session: Session) -> Result:
        """1 for a right answer, less `hint_costs` with the hint, else 0."""
        messages = [{"role": "user", "content": f"{task['riddle']} Answer in one word."}]
        for hinted in (False, True):
            reply = await session.chat(messages)
            if any(answer in reply.text.lower() for answer in task["answers"]):
                return Result(reward=1.0 - self._options.hint_costs * hinted, info={"hinted": hinted})
            messages += [reply.message, {"role": "user", "content": f"No. A hint: {task['hint']}"}]
        return Result(reward=0.0, info={"hinted": True})
