"""Which session and which route a request is for. Pure: a path and some keys in, a session out.

Every route is served with the session's prefix in front of it and without, and with any number
of `/v1` between: clients differ in what they append to a base URL.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar

from attrs import frozen

from molt_plugin_gateway.exchange import BadRequest

KEY_START: Final = "sk-molt-"
PROBES: Final = frozenset({"/", "/health", "/api/hello"})
_PATH: Final = re.compile(r"(?:/s/(?P<prefix>[^/]*))?(?:/+v1)*(?:/+(?P<route>.*?))?/*")


class Named(Protocol):
    @property
    def prefix(self) -> str: ...
    @property
    def api_key(self) -> str: ...


Session = TypeVar("Session", bound=Named)


@frozen
class Target:
    prefix: str | None
    """None where the path names no session."""
    route: str
    """After the prefix and `/v1`, without a slash at the end: `/chat/completions`."""


def read_path(path: str) -> Target:
    found = _PATH.fullmatch(path)
    return Target(found["prefix"], "/" + (found["route"] or "")) if found else Target(None, path)


def read_keys(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that a request carries; headers in lower case."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = (bearer.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", "").strip())
    return tuple(key for key in given if key)


def new_prefix() -> str:
    return secrets.token_hex(16)


def new_key() -> str:
    """Begins as no placeholder does, so that another session's key is told from one."""
    return KEY_START + secrets.token_hex(24)


class Directory(Generic[Session]):
    """Open sessions, by prefix and by key."""

    def __init__(self) -> None:
        self._by_prefix: dict[str, Session] = {}
        self._by_key: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._by_prefix)

    def add(self, session: Session) -> None:
        self._by_prefix[session.prefix] = session
        self._by_key[session.api_key] = session

    def remove(self, session: Session) -> None:
        self._by_prefix.pop(session.prefix, None)
        self._by_key.pop(session.api_key, None)

    def sessions(self) -> tuple[Session, ...]:
        return tuple(self._by_prefix.values())

    def find(self, prefix: str | None, keys: tuple[str, ...]) -> Session:
        """The open session of a prefix, or else of a key.

        Raises:
            BadRequest: there is none, or a key belongs elsewhere. Always status 400: clients repeat
                401 and 404 many times.
        """
        ours = [key for key in keys if key.startswith(KEY_START)]
        if prefix is not None:
            session = self._by_prefix.get(prefix)
            if session is None:
                raise closed()
            if any(key != session.api_key for key in ours):
                raise BadRequest(
                    "The API key belongs to another session than the URL.", code="invalid_api_key"
                )
            return session
        if not ours:
            raise BadRequest(
                "Neither the URL nor the API key names a session: use the session's base URL, or its key as "
                "'Authorization: Bearer' or 'x-api-key'.",
                code="invalid_api_key",
            )
        found = {key: self._by_key.get(key) for key in ours}
        if len(found) > 1:
            raise BadRequest("The request carries the API keys of two sessions.", code="invalid_api_key")
        (session,) = found.values()
        if session is None:
            raise closed()
        return session


def closed() -> BadRequest:
    return BadRequest(
        "This session is closed, or was never open: the rollout has ended. Don't retry.",
        code="session_closed",
    )
