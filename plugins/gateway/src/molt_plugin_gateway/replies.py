"""What the engine returned, as what the client gets. Pure: tokens in, a `Choice` and its usage out."""

from __future__ import annotations

import contextlib
import json
import secrets
from bisect import bisect_left
from collections.abc import Sequence

from attrs import frozen

from molt_core.api.engine import Generation
from molt_plugin_gateway.chat.parsers import Parser
from molt_plugin_gateway.chat.template import HfTemplate
from molt_plugin_gateway.exchange import Call, Choice, TokenLogprob, Tool, ToolCall, Turn


@frozen(kw_only=True)
class Model:
    """What a session needs to know of the model that it talks to."""

    template: HfTemplate
    parser: Parser
    max_length: int
    end_token_ids: tuple[int, ...]


def read_reply(model: Model, call: Call, generation: Generation, *, prompt_tail: str) -> Choice:
    """Stop texts are cut off; calls get ids that no other call has."""
    text = reply_text(model, generation)
    stops = [(text.find(stop), stop) for stop in call.stop if stop in text]
    end, stop_text = min(stops, default=(len(text), None))
    shown = () if call.tool_choice == "none" else call.tools
    parsed = model.parser.parse(text[:end], shown, prompt_tail=prompt_tail)
    tools = {tool.name: tool for tool in shown}
    calls = tuple(_minted(name, arguments, tools.get(name)) for name, arguments in parsed.calls)
    turn = Turn(
        role="assistant",
        content=(parsed.text,) if parsed.text else (),
        reasoning=parsed.reasoning,
        tool_calls=calls if call.parallel_tool_calls else calls[:1],
    )
    return Choice(
        turn=turn,
        finish_reason="tool_calls"
        if calls and generation.finish_reason == "stop"
        else generation.finish_reason,
        stop_text=stop_text,
        logprobs=_logprobs(model, generation) if call.logprobs else (),
    )


def reply_text(model: Model, generation: Generation) -> str:
    return model.template.decode(_without_end(model, generation))


def num_reasoning_tokens(model: Model, generation: Generation, reasoning: str | None) -> int:
    """Tokens up to the end of the reasoning: the shortest start of the reply that contains it."""
    if not reasoning:
        return 0
    token_ids = generation.token_ids.tolist()
    return bisect_left(
        range(len(token_ids)), True, key=lambda length: reasoning in model.template.decode(token_ids[:length])
    )


def _logprobs(model: Model, generation: Generation) -> tuple[TokenLogprob, ...]:
    token_ids = _without_end(model, generation)
    return tuple(
        TokenLogprob(token=model.template.decode([token_id]), logprob=logprob)
        for token_id, logprob in zip(token_ids, generation.logprobs[: len(token_ids)].tolist(), strict=True)
    )


def _without_end(model: Model, generation: Generation) -> Sequence[int]:
    token_ids: list[int] = generation.token_ids.tolist()
    return token_ids[:-1] if token_ids and token_ids[-1] in model.end_token_ids else token_ids


def _minted(name: str, arguments: str, tool: Tool | None) -> ToolCall:
    """A sampled call as the wires and the capture know it."""
    custom = tool is not None and tool.custom
    if custom:
        # what was not written as the tool's schema says, the client gets as the model wrote it
        with contextlib.suppress(ValueError, KeyError, TypeError):
            arguments = str(json.loads(arguments)["input"])
    return ToolCall(
        id=f"call_{secrets.token_hex(12)}",
        name=name,
        arguments=arguments,
        namespace=tool.namespace if tool else "",
        custom=custom,
    )
