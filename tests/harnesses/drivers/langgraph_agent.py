"""A ReAct agent of langgraph with one tool: `python langgraph_agent.py chat|responses|messages PROMPT`."""

import os
import subprocess
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def run(command: str) -> str:
    """Run a shell command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


wire, prompt = sys.argv[1:]
if wire == "messages":
    model = ChatAnthropic(model=os.environ["ANTHROPIC_MODEL"])
else:
    model = ChatOpenAI(model=os.environ["OPENAI_MODEL"], use_responses_api=wire == "responses")
last = create_react_agent(model, [run]).invoke({"messages": [("user", prompt)]})["messages"][-1]
print("ANSWER", last.text if isinstance(last.text, str) else last.text())
