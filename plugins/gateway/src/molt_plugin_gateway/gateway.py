"""The gateway `http`: loads the model's chat format, serves HTTP, opens sessions."""

from __future__ import annotations

import asyncio
import gc

from molt_core.api.gateway import GatewayContext, SessionRequest
from molt_plugin_gateway.chat.load import load_chat
from molt_plugin_gateway.replies import Model
from molt_plugin_gateway.routing import Directory
from molt_plugin_gateway.server import Server
from molt_plugin_gateway.session import GatewaySession
from molt_plugin_gateway.spec import GatewayOptions


class HttpGateway:
    """See `molt_core.api.gateway.Gateway`."""

    def __init__(self, options: GatewayOptions, context: GatewayContext) -> None:
        self._options = options
        self._context = context
        self._sessions: Directory[GatewaySession] = Directory()
        self._server = Server(self._sessions, host=options.host, keepalive_s=options.keepalive_s)
        self._model: Model | None = None
        self._origin = ""

    async def start(self) -> None:
        options, context = self._options, self._context
        # in a thread: reading a large tokenizer takes seconds
        template, parser = await asyncio.to_thread(
            load_chat, context.model_folder, tool_parser=options.tool_parser,
            reasoning_parser=options.reasoning_parser, end_token_ids=context.end_token_ids,
        )  # fmt: skip
        self._model = Model(
            template=template,
            parser=parser,
            max_length=context.max_length,
            end_token_ids=context.end_token_ids,
        )
        self._origin = self._server.start()
        # modules and the tokenizer stay: without this each full collection walks all of them, for 80 ms
        gc.collect()
        gc.freeze()

    def open(self, request: SessionRequest) -> GatewaySession:
        assert self._model is not None, "start comes first"
        session = GatewaySession(
            request, model=self._model, options=self._options, origin=self._origin,
            on_close=self._sessions.remove,
        )  # fmt: skip
        self._sessions.add(session)
        return session

    async def stop(self) -> None:
        for session in self._sessions.sessions():
            await session.close()
        await self._server.stop()
