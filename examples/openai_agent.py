"""An agent written with the OpenAI SDK: a question, a tool, an answer. Run by openai_agent.toml.

The agent is an ordinary program: nothing in it is about training. It only takes the address, the key
and the model's name from the session. What it leaves out: anything that needs more than two turns.
"""

from __future__ import annotations

import json

from openai import AsyncOpenAI

from molt_core.api.agent import AgentTask, Result, Session

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


def add(arguments: str) -> str:
    """What the tool says; the policy reads its own mistakes."""
    try:
        numbers = json.loads(arguments)
        return str(int(numbers["a"]) + int(numbers["b"]))
    except (ValueError, TypeError, KeyError) as wrong:
        return f"error: {type(wrong).__name__}: {wrong}"


async def solve(task: AgentTask, session: Session) -> Result:
    messages: list = [{"role": "system", "content": "Use the tool, then answer."}, *task.messages]
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:
        for _ in range(2):
            answer = await client.chat.completions.create(model=session.model, messages=messages, tools=[ADD])
            message = answer.choices[0].message
            if not message.tool_calls:
                return Result(text=message.content or "")  # graded by the run's environment
            messages.append(message)
            for call in message.tool_calls:
                result = add(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return Result(text="", truncated=True)
