"""A harness as one finds it: knows nothing of Molt, takes a task as its argument and the model from the environment.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… OPENAI_MODEL=… python harness.py "What is 1+2?"

It lets the model write files in the working directory, in up to three turns, and prints the last
answer. Run by command.toml, unmodified, as any command line harness would be.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from openai import OpenAI

WRITE = {
    "type": "function",
    "function": {
        "name": "write",
        "description": "Write a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
            "required": ["path", "text"],
        },
    },
}


def write(arguments: str) -> str:
    try:
        call = json.loads(arguments)
        Path(call["path"]).write_text(call["text"])
    except (ValueError, TypeError, KeyError, OSError) as wrong:
        return f"error: {wrong}"
    return "written"


def main(task: str) -> int:
    client = OpenAI()  # address and key are in the environment
    messages: list = [
        {"role": "system", "content": "Write the answer to answer.txt with the tool, then say done."},
        {"role": "user", "content": task},
    ]
    for _ in range(3):
        reply = client.chat.completions.create(
            model=os.environ["OPENAI_MODEL"], messages=messages, tools=[WRITE]
        )
        message = reply.choices[0].message
        if not message.tool_calls:
            sys.stdout.write(f"{message.content}\n")
            return 0
        messages.append(message)
        for call in message.tool_calls:
            result = write(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return 1  # gave up


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
