"""The HTTP server: requests of all wires in, answers as JSON or server-sent events out.

In: ASGI messages from uvicorn, which runs on the worker's own event loop. It reads bodies, finds the
session, keeps streams alive and knows when a client has left; what an answer is, the session and the
wires know. A streamed reply is generated whole before its first word is sent, so a stream that
breaks has committed its client to nothing that was not recorded.

Every refusal is status 400 in the wire's own shape, save unknown routes, wrong methods and bodies
that are too large: those are the codes that no client repeats.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Any, Final

import uvicorn

from molt_core.errors import PreflightError
from molt_plugin_gateway.connection import Connection, Receive, Send
from molt_plugin_gateway.exchange import Answer, BadRequest, Call
from molt_plugin_gateway.retries import Attempt
from molt_plugin_gateway.routing import PROBES, Directory, closed, read_keys, read_path
from molt_plugin_gateway.sampling import Work
from molt_plugin_gateway.session import MODEL, GatewaySession
from molt_plugin_gateway.wires import WIRES, Wire

GRACE_S: Final = 0.5
"""A stream's headers wait so long for the answer: until then a refusal can still have its own status."""
IDLE_CONNECTION_S: Final = 600
"""Clients re-use connections; one that we close at that moment costs them a retry."""
STATUS: Final = {"not_found": 404, "method_not_allowed": 405, "request_too_large": 413}
"""By code of the problem; 400 is the rest."""


class _Uvicorn(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Signals are the worker's."""
        return nullcontext()


class Server:
    def __init__(self, sessions: Directory[GatewaySession], *, host: str, keepalive_s: float) -> None:
        self._sessions = sessions
        self._host = host
        self._keepalive_s = keepalive_s
        self._uvicorn: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> str:
        """Listen at a port that the kernel chooses; returns scheme, host and port.

        Raises:
            PreflightError: the address can't be had.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # asyncio turns Nagle's algorithm off for sockets that say TCP; others wait 40 ms between two writes
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.bind((self._host, 0))
            listening.listen(2048)
        except OSError as error:
            listening.close()
            raise PreflightError(
                f"the gateway can't listen on {self._host} (--gateway.host): {error}; wanted an address of this "
                "machine, or 127.0.0.1"
            ) from error
        config = uvicorn.Config(
            self._serve, interface="asgi3", lifespan="off", ws="none", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_keep_alive=IDLE_CONNECTION_S,
            timeout_graceful_shutdown=5,
        )  # fmt: skip
        self._uvicorn = _Uvicorn(config)
        self._serving = asyncio.create_task(self._uvicorn.serve(sockets=[listening]))
        host, port = listening.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def stop(self) -> None:
        if self._uvicorn is not None and self._serving is not None:
            self._uvicorn.should_exit = True
            await self._serving

    async def _serve(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        target = read_path(scope["path"])
        connection = Connection(receive, send)
        wire = WIRES.get(target.route, _wire_of_client(headers))()
        try:
            if target.route in PROBES and scope["method"] in ("GET", "HEAD"):
                await connection.reply(200, {"status": "ok"})
                return
            self._check(target.route, scope["method"], headers)
            session = self._sessions.find(target.prefix, read_keys(headers))
            if _is_models(target.route):
                await connection.reply(200, _models(one=target.route != "/models"))
                return
            body = _read_json(await connection.body())
            call = wire.read(body, headers)
            if target.route.endswith("/count_tokens"):
                await connection.reply(200, {"input_tokens": await session.count_tokens(call)})
                return
            attempt = session.request(call, _key(target.route, body, call))
            await self._answer(connection, wire, session, call, attempt)
        except (BadRequest, RecursionError) as raised:
            problem = (
                raised if isinstance(raised, BadRequest) else BadRequest("The body is nested too deeply.")
            )
            if connection.started:
                await connection.write(b"".join(wire.error_event(problem)))
                await connection.end()
            else:
                await connection.discard()
                await connection.reply(STATUS.get(problem.code or "", 400), wire.error(problem))
        finally:
            await connection.close()

    def _check(self, route: str, method: str, headers: Mapping[str, str]) -> None:
        wanted = "GET" if _is_models(route) else "POST"
        if wanted == "POST" and route not in WIRES:
            raise BadRequest(
                f"There is no route {route!r}; served are {', '.join(WIRES)} and /models.", code="not_found"
            )
        if method != wanted:
            raise BadRequest(f"{method} is not served here; use {wanted}.", code="method_not_allowed")
        kind = headers.get("content-type", "json")
        if wanted == "POST" and (
            "json" not in kind or headers.get("content-encoding", "identity") != "identity"
        ):
            raise BadRequest("The body must be plain JSON with content-type application/json.")

    async def _answer(
        self, connection: Connection, wire: Wire, session: GatewaySession, call: Call, attempt: Attempt[Work]
    ) -> None:
        work, number = attempt.work, attempt.connection
        connection.watch()
        try:
            await connection.until(work.admitted)
            await connection.until(work.task, timeout_s=GRACE_S if call.stream else None)
            if call.stream and not work.task.done() and not connection.gone:
                await connection.begin_stream(b"".join(wire.begin(work.answer_id, work.created_s, call)))
                while not await connection.until(work.task, timeout_s=self._keepalive_s):
                    await connection.write(wire.keepalive())
            if connection.gone:
                return
            answer = _result(work.task)
            if call.stream:
                if not connection.started:
                    await connection.begin_stream(b"".join(wire.begin(work.answer_id, work.created_s, call)))
                await connection.write(b"".join(wire.events(answer, call)))
            else:
                await connection.write_json(200, wire.whole(answer, call))
            # asked before the end is sent: a client may leave at once when it has what it needs
            if not connection.gone:
                session.delivered(attempt)
            await connection.end()
        except BadRequest:
            raise
        except Exception as error:
            # a defect of ours: whatever the client does next, the rollout must not go on as if nothing was
            session.fail(error)
            raise
        finally:
            # nothing changes for an answer that was delivered
            session.gone(attempt, number)


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode()
        read = json.loads(text)
        if r"\ud" in text or r"\uD" in text:
            # half of a pair, which clients make when they cut texts, has no tokens
            read = json.loads(json.dumps(read, ensure_ascii=False).encode("utf-8", "replace"))
    except UnicodeDecodeError as error:
        raise BadRequest(f"The body is not valid UTF-8: {error}.") from error
    except ValueError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    if not isinstance(read, dict):
        raise BadRequest(f"The body must be a JSON object, got {type(read).__name__}.")
    return read


def _key(route: str, body: Mapping[str, Any], call: Call) -> str:
    """Equal for attempts at one answer: clients change how they want it sent, and nothing else."""
    asked = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    written = json.dumps([route, call.hints.conversation, asked])
    return blake2b(written.encode(), digest_size=16).hexdigest()


def _result(task: asyncio.Task[Answer]) -> Answer:
    if task.cancelled():
        raise closed()
    return task.result()


def _wire_of_client(headers: Mapping[str, str]) -> Callable[[], Wire]:
    """For errors where the route does not say which wire is spoken."""
    return WIRES["/messages" if "anthropic-version" in headers else "/chat/completions"]


def _is_models(route: str) -> bool:
    return route == "/models" or route.startswith("/models/")


def _models(*, one: bool) -> dict[str, Any]:
    """In the form of both providers."""
    model = {
        "id": MODEL, "object": "model", "created": 0, "owned_by": "molt",
        "type": "model", "display_name": MODEL, "created_at": "1970-01-01T00:00:00Z",
    }  # fmt: skip
    page = {"object": "list", "data": [model], "has_more": False, "first_id": MODEL, "last_id": MODEL}
    return model if one else page
