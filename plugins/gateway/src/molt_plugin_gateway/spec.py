"""Spec and options of the gateway `http`. Imports nothing heavy."""

from __future__ import annotations

from typing import Final, Literal

from molt_core.api.options import option, options
from molt_core.api.spec import GatewaySpec

Policy = Literal["train", "leave-out"]


def _reachable(host: str) -> str | None:
    return None if host not in ("", "0.0.0.0", "::", "*") else "must be one address, which agents are told"  # noqa: S104


@options
class GatewayOptions:
    host: str = option(
        "127.0.0.1",
        help="address to listen on, at a port that the kernel chooses; one beyond loopback lets other machines in",
        check=_reachable,
    )
    orphans: Policy = option(
        "train", help="samples that no later history holds: dropped, replaced, or never delivered"
    )
    side_calls: Policy = option(
        "leave-out",
        help="samples of side calls: titles, compaction, and requests without the tools of the others",
    )
    tool_parser: str = option(
        "auto", help="how tool calls are written: auto, none, or a parser's name in vLLM"
    )
    reasoning_parser: str = option(
        "auto", help="how reasoning is written: auto, none, or a parser's name in vLLM"
    )
    keepalive_s: float = option(3.0, help="seconds between the events that keep a streamed reply alive", gt=0)
    max_requests: int = option(1000, help="most requests of one session; later ones are refused", ge=1)
    max_session_tokens: int | None = option(
        None, help="most tokens sampled in one session; default: as many as fit", ge=1
    )
    max_session_s: float | None = option(
        None, help="seconds after which a session takes no new request; default: until the rollout ends", gt=0
    )


HTTP: Final = GatewaySpec(
    name="http",
    summary="OpenAI and Anthropic endpoints, and direct calls, with every sampled token recorded",
    api=1,
    factory="molt_plugin_gateway.gateway:HttpGateway",
    options=GatewayOptions,
)
"""Records what the policy samples while an agent talks to it: OpenAI and Anthropic endpoints, or direct calls."""
