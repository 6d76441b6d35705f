"""An agent of openai-agents with one tool: `python openai_agents_agent.py responses|chat PROMPT`."""

import os
import subprocess
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI


@function_tool
def run(command: str) -> str:
    """Run a shell command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


wire, prompt = sys.argv[1:]
model = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}[wire]
agent = Agent(
    name="agent",
    instructions="Use the tool.",
    tools=[run],
    model=model(os.environ["OPENAI_MODEL"], AsyncOpenAI()),
)
print("ANSWER", Runner.run_sync(agent, prompt, max_turns=6).final_output)
