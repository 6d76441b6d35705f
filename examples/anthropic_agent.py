"""An agent written with the Anthropic SDK, streaming, with a tool. Run by anthropic_agent.toml.

A class instead of a function, because that is made anew for every rollout and may keep notes on
itself. It grades itself: what `run` returns is the reward.
"""

from __future__ import annotations

from anthropic import AsyncAnthropic

from molt_core.api.agent import AgentTask, Session
from molt_core.api.options import NoOptions

LOOK_UP = {
    "name": "look_up",
    "description": "Look up the answer to a sum like 1+2.",
    "input_schema": {"type": "object", "properties": {"sum": {"type": "string"}}, "required": ["sum"]},
}
MAX_TURNS = 3


class Solver:
    def __init__(self, options: NoOptions) -> None:
        self.num_looked_up = 0

    async def run(self, task: AgentTask, session: Session) -> float:
        """1 for the right answer; a tenth less each time that it was looked up."""
        messages: list = [{"role": "user", "content": task.prompt}]
        client = AsyncAnthropic(base_url=session.anthropic_base_url, api_key=session.api_key)
        async with client:
            for _ in range(MAX_TURNS):
                async with client.messages.stream(
                    model=session.model, max_tokens=64, messages=messages, tools=[LOOK_UP],
                    system="Answer with the number alone.",
                ) as stream:  # fmt: skip
                    reply = await stream.get_final_message()
                calls = [block for block in reply.content if block.type == "tool_use"]
                if not calls:
                    text = "".join(block.text for block in reply.content if block.type == "text")
                    return (text.strip() == task["answer"]) - 0.1 * self.num_looked_up
                self.num_looked_up += len(calls)
                messages.append({"role": "assistant", "content": reply.content})
                results = [
                    {"type": "tool_result", "tool_use_id": call.id, "content": task["answer"]}
                    for call in calls
                ]
                messages.append({"role": "user", "content": results})
        return 0.0
