"""An agent of smolagents with one tool: `python smolagents_agent.py tools|code PROMPT`."""

import os
import subprocess
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def run(command: str) -> str:
    """Run a shell command.

    Args:
        command: The command.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


kind, prompt = sys.argv[1:]
model = OpenAIServerModel(
    os.environ["OPENAI_MODEL"], api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
)
agent = {"tools": ToolCallingAgent, "code": CodeAgent}[kind](tools=[run], model=model, max_steps=4)
print("ANSWER", agent.run(prompt))
