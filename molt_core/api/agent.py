"""Slot `agents`: a program that does a task by talking to the policy.

API 1. The factory is called as `factory(options)` for every rollout, so an agent may keep state
on itself. An async function `(task, session)` in a file needs no class: `--agent ./file.py:solve`.

    class Solver:
        def __init__(self, options: NoOptions) -> None: ...
        async def run(self, task: AgentTask, session: Session) -> Result:
            client = AsyncOpenAI(base_url=session.base_url, api_key=session.api_key)
            reply = await client.chat.completions.create(model=session.model, messages=task.messages)
            return Result(reward=float(reply.choices[0].message.content == task["answer"]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from attrs import field, frozen

from molt_core.api.environment import Row


@frozen(kw_only=True)
class AgentTask:
    """One task: `task["answer"]` is a column of its row."""

    task_id: str
    row: Row
    """Every column of the data set, or what the environment made."""
    messages: tuple[Mapping[str, Any], ...]
    """The opening conversation in the form of OpenAI's chat API; empty where the row has none."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tool definitions of the row's `tools` column, in OpenAI's form."""
    timeout_s: float
    """Seconds that the whole rollout may take."""

    @property
    def prompt(self) -> str:
        """Text of the last user message; empty where there is none."""
        for message in reversed(self.messages):
            if message["role"] == "user":
                return text_of(message["content"])
        return ""

    def __getitem__(self, column: str) -> Any:
        return self.row[column]


def text_of(content: Any) -> str:
    """Text of a message's content: a string, None, or a list of content parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


@frozen(kw_only=True)
class ToolCall:
    """A call of a tool, as the policy wrote it."""

    id: str
    name: str
    arguments: str
    """The JSON text of the arguments; not necessarily valid."""


@frozen(kw_only=True)
class ChatReply:
    """What the policy said to `session.chat`."""

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: Literal["stop", "length", "tool_calls"]
    """`length`: a token limit ended it, or the conversation no longer fits (then `num_tokens` may be 0)."""
    num_tokens: int
    sample_id: int
    """Number of the recorded sample in this session; -1 when nothing was sampled."""

    @property
    def message(self) -> dict[str, Any]:
        """This reply as a message to append to the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.tool_calls
            ]
        return message


class Session(Protocol):
    """The policy as one rollout sees it. Everything sampled through it is recorded, token by token.

    Closed when the agent returns: requests in flight are cancelled, later ones are refused.
    """

    @property
    def base_url(self) -> str:
        """For OpenAI clients; ends in /v1."""
        ...

    @property
    def anthropic_base_url(self) -> str:
        """For Anthropic clients; without /v1."""
        ...

    @property
    def api_key(self) -> str:
        """Opens this session and no other."""
        ...

    @property
    def model(self) -> str:
        """Name to ask for; any name is served by the policy."""
        ...

    @property
    def num_samples(self) -> int:
        """Replies that the policy has given so far."""
        ...

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
    ) -> ChatReply:  # fmt: skip
        """Continue a conversation in OpenAI's chat form, without HTTP and an SDK.

        A conversation that no longer fits the context is answered with an empty reply of finish
        reason `length`.

        Raises:
            ValueError: the messages are malformed; says which.
        """
        ...

    async def judge(
        self, messages: str | Sequence[Mapping[str, Any]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> str:
        """Ask the same engines something that is neither recorded nor trained; returns the text."""
        ...


@frozen(kw_only=True)
class Result:
    """How a rollout went."""

    reward: float | None = None
    """None leaves the grade to the run's environment; without one the rollout abstains."""
    text: str | None = None
    """What an environment grades; default: the policy's last reply."""
    truncated: bool = False
    """A limit of the agent's own (turns, time) ended it."""
    workspace: Path | None = None
    """Folder that the agent worked in; graders may read it."""
    info: Mapping[str, float] = field(factory=dict)
    """Numbers worth a metric."""


class Agent(Protocol):
    """A method `close`, if there is one, is called after grading, also after an error: to remove a workspace, say."""

    async def run(self, task: AgentTask, session: Session) -> Result | float | None:
        """Do the task. A plain number is taken as the reward.

        An exception fails the rollout, it never becomes a reward of 0. Blocking code belongs in
        `asyncio.to_thread`; a plain `def` is run in a thread.
        """
        ...
