"""A request and its answer in one form, whichever wire they came over.

Wires read JSON into a `Call` and write an `Answer` as JSON or events. Templates render turns.
The capture compares turns. Nothing here knows HTTP, tokens or templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

FinishReason = Literal["stop", "length", "tool_calls"]


class BadRequest(Exception):
    """The caller asked for what can't be done. Becomes a 400 in the wire's own shape."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.message = message
        self.param = param
        """Dotted path of the field at fault: `messages.3.content`."""
        self.code = code
        """`context_length_exceeded`, `session_closed`, `limit_exceeded`, `invalid_api_key`, …"""
        super().__init__(message)


class ContextOverflow(BadRequest):
    """The prompt alone fills the context."""

    def __init__(self, num_tokens: int, max_length: int) -> None:
        self.num_tokens = num_tokens
        self.max_length = max_length
        super().__init__(
            f"This model's maximum context length is {max_length} tokens; the messages have {num_tokens} tokens.",
            param="messages",
            code="context_length_exceeded",
        )


@frozen(kw_only=True)
class Image:
    url: str
    """http(s) or data URL."""


@frozen(kw_only=True)
class ToolCall:
    """A call made by an assistant turn. Ids of sampled calls are minted here and unique over all sessions."""

    id: str
    name: str
    """Flat name that the template shows; `namespace` is put back on the wire."""
    arguments: str
    """JSON text; for custom tools the plain input."""
    namespace: str = ""
    custom: bool = False


@frozen(kw_only=True)
class Turn:
    """One message."""

    role: Literal["system", "user", "assistant", "tool"]
    """`developer` is read as `system`."""
    content: tuple[str | Image, ...] = ()
    """Parts in order. Empty strings are left out."""
    reasoning: str | None = None
    """Assistant only; None where the caller sent none."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """Role tool: which call this answers."""

    @property
    def text(self) -> str:
        return "".join(part for part in self.content if isinstance(part, str))


@frozen(kw_only=True)
class Tool:
    name: str
    """Flat name, unique in a call."""
    description: str = ""
    parameters: Mapping[str, Any] = field(factory=dict)
    """JSON schema; for custom tools one string property `input`."""
    namespace: str = ""
    custom: bool = False


@frozen(kw_only=True)
class Hints:
    """What headers tell of a request. Never needed."""

    conversation: str = ""
    """Id of an agent or thread inside the harness; empty when it sends none."""
    kind: str = ""
    """`compaction`, `title`, … where the harness says so."""
    retry_count: int = 0


@frozen(kw_only=True)
class Call:
    """One request."""

    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = ()
    """Without deferred tools that no tool result has referred to yet, and without hosted ones."""
    tool_choice: Literal["auto", "none", "required"] | Tool = "auto"
    """A tool where one is named."""
    parallel_tool_calls: bool = True
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    json_schema: str | None = None
    """JSON text of the schema the reply must follow; `{}` for any JSON object."""
    logprobs: bool = False
    stream: bool = False
    stream_usage: bool = True
    """Chat: whether a usage chunk was asked for. Other wires always carry usage."""
    model: str = "policy"
    """Echoed."""
    ignored: tuple[str, ...] = ()
    """Fields that follow the run instead of the request, e.g. `temperature`: warned of once a session."""
    hints: Hints = Hints()


@frozen(kw_only=True)
class TokenLogprob:
    token: str
    logprob: float


@frozen(kw_only=True)
class Choice:
    turn: Turn
    """Role assistant; reasoning None where the model has none."""
    finish_reason: FinishReason
    stop_text: str | None = None
    """The stop string that ended the reply."""
    logprobs: tuple[TokenLogprob, ...] = ()


@frozen(kw_only=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    """Over all choices."""
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that a matched history supplied."""


@frozen(kw_only=True)
class Answer:
    id: str
    """Without a wire's prefix; wires add `chatcmpl-`, `resp_`, `msg_`."""
    created_s: int
    """Unix time."""
    model: str
    choices: tuple[Choice, ...]
    usage: Usage
    sample_ids: tuple[int, ...] = ()
    """By choice, in the session's record."""
