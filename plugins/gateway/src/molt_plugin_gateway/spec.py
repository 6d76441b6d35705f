"""Spec and options of the gateway `http`. Imports nothing heavy."""

from __future__ import annotations

from typing import Final

from molt_core.api.spec import GatewaySpec

HTTP: Final = GatewaySpec(
    name="http",
    summary="OpenAI and Anthropic endpoints, and direct calls, with every sampled token recorded",
    api=1,
    factory="molt_plugin_gateway.gateway:HttpGateway",
)
