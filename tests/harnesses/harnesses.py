"""The harnesses of the suite: how each is started, and how the policy calls its tool and ends."""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve

from tests.harnesses.kit import ANSWER, DRIVERS, Harness, python_call, tool_call


def _driven(name: str, driver: str, kind: str, **more: Any) -> Harness:
    """A library, by a small program of ours in its environment."""
    return Harness(
        name=name,
        argv=("python", str(DRIVERS / driver), kind, "{prompt}"),
        env=("OPENAI_AGENTS_DISABLE_TRACING=1",),
        tool="run",
        **more,
    )


CLAUDE_CODE: Final = Harness(
    name="claude-code",
    recipe="claude-code",
    tool="Bash",
    arguments=lambda command: {"command": command, "description": "Print"},
)
HARNESSES: Final = {
    "mini-swe-agent": Harness(
        name="mini-swe-agent",
        recipe="mini-swe-agent",
        env=("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT=2",),
        tool="bash",
        answer=ANSWER
        + tool_call("bash", {"command": f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo '{ANSWER}'"}),
    ),
    "smolagents-tools": _driven(
        "smolagents", "smolagents_agent.py", "tools", answer=tool_call("final_answer", {"answer": ANSWER})
    ),
    "smolagents-code": _driven(
        "smolagents",
        "smolagents_agent.py",
        "code",
        write=python_call,
        at_work="def run(",
        on_wire="def run(",
        answer=python_call("final_answer", {"answer": ANSWER}),
    ),
    "openai-agents-responses": _driven("openai-agents", "openai_agents_agent.py", "responses"),
    "openai-agents-chat": _driven("openai-agents", "openai_agents_agent.py", "chat"),
    "langgraph-chat": _driven("langchain", "langgraph_agent.py", "chat"),
    "langgraph-responses": _driven("langchain", "langgraph_agent.py", "responses"),
    "langgraph-messages": _driven("langchain", "langgraph_agent.py", "messages"),
    "claude-code": CLAUDE_CODE,
    "claude-code-title": evolve(CLAUDE_CODE, env=("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=",)),
    "codex": Harness(
        name="codex", recipe="codex", tool="exec_command", arguments=lambda command: {"cmd": command}
    ),
    "opencode": Harness(
        name="opencode",
        recipe="opencode",
        tool="bash",
        arguments=lambda command: {"command": command, "description": "Print"},
    ),
    "qwen-code": Harness(
        name="qwen-code",
        recipe="qwen-code",
        tool="run_shell_command",
        arguments=lambda command: {"command": command, "is_background": False},
    ),
}
