from __future__ import annotations

import pytest
from attrs import frozen
from molt_plugin_gateway.exchange import BadRequest
from molt_plugin_gateway.limits import Limits
from molt_plugin_gateway.routing import Directory, Target, new_key, new_prefix, read_keys, read_path


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v1/chat/completions", Target(None, "/chat/completions")),
        ("/chat/completions", Target(None, "/chat/completions")),
        ("/s/abc/v1/chat/completions", Target("abc", "/chat/completions")),
        ("/s/abc/v1/v1/messages", Target("abc", "/messages")),
        ("/s/abc/messages/count_tokens/", Target("abc", "/messages/count_tokens")),
        ("/s/abc//v1//responses", Target("abc", "/responses")),
        ("/s/abc/v1/models/policy", Target("abc", "/models/policy")),
        ("/", Target(None, "/")),
        ("/v1", Target(None, "/")),
        ("/s/abc", Target("abc", "/")),
        ("/s/abc/api/hello", Target("abc", "/api/hello")),
        ("/s//v1/messages", Target("", "/messages")),
        ("/s/abc/v1/s/def/v1/messages", Target("abc", "/s/def/v1/messages")),
        ("/v1beta/messages", Target(None, "/v1beta/messages")),
        ("*", Target(None, "*")),
        ("/a\nb", Target(None, "/a\nb")),
    ],
)
def test_paths(path: str, target: Target) -> None:
    assert read_path(path) == target


@pytest.mark.parametrize(
    ("headers", "keys"),
    [
        ({"authorization": "Bearer abc"}, ("abc",)),
        ({"authorization": "bearer  abc "}, ("abc",)),
        ({"x-api-key": "abc"}, ("abc",)),
        ({"authorization": "Bearer abc", "x-api-key": "def"}, ("abc", "def")),
        ({"authorization": "Basic abc"}, ()),
        ({"authorization": "Bearer"}, ()),
        ({}, ()),
    ],
)
def test_keys(headers: dict[str, str], keys: tuple[str, ...]) -> None:
    assert read_keys(headers) == keys


@frozen
class Session:
    prefix: str
    api_key: str


def test_either_of_prefix_and_key_finds_a_session_and_those_of_two_are_refused() -> None:
    directory: Directory[Session] = Directory()
    a, b = (Session(new_prefix(), new_key()) for _ in range(2))
    directory.add(a)
    directory.add(b)
    assert directory.find(a.prefix, ()) is a
    assert directory.find(a.prefix, ("placeholder", a.api_key)) is a
    assert directory.find(None, ("placeholder", b.api_key)) is b
    for prefix, keys in [
        (a.prefix, (b.api_key,)),
        (a.prefix, (a.api_key, b.api_key)),
        (None, (a.api_key, b.api_key)),
        (None, ("placeholder",)),
        (None, ()),
    ]:
        with pytest.raises(BadRequest) as refused:
            directory.find(prefix, keys)
        assert refused.value.code == "invalid_api_key"


def test_a_closed_session_is_told_from_no_session_and_its_key_opens_no_other() -> None:
    directory: Directory[Session] = Directory()
    a, b = (Session(new_prefix(), new_key()) for _ in range(2))
    directory.add(a)
    directory.add(b)
    directory.remove(a)
    assert directory.sessions() == (b,)
    for prefix, keys, code in [
        (a.prefix, (a.api_key,), "session_closed"),
        (None, (a.api_key,), "session_closed"),
        ("guess", (b.api_key,), "session_closed"),
        (b.prefix, (a.api_key,), "invalid_api_key"),
    ]:
        with pytest.raises(BadRequest) as refused:
            directory.find(prefix, keys)
        assert refused.value.code == code


def test_limits_refuse_with_the_option_to_raise_and_count_only_what_was_let_in() -> None:
    limits = Limits(max_requests=3, max_tokens=10, max_s=60.0)
    assert limits.admit(2, age_s=0.0) == 10
    limits.sampled(4)
    with pytest.raises(BadRequest, match=r"2 of 3 were made, 2 more.*--gateway\.max-requests"):
        limits.admit(2, age_s=1.0)
    assert limits.admit(1, age_s=59.9) == 6
    limits.sampled(7)
    with pytest.raises(BadRequest, match=r"11 of 10 were sampled.*--gateway\.max-session-tokens"):
        Limits(max_requests=9, max_tokens=10, max_s=None, num_tokens=11).admit(1, age_s=0.0)
    with pytest.raises(BadRequest, match=r"open for 60 s of 60 s.*--gateway\.max-session-s"):
        limits.admit(1, age_s=60.0)
    assert Limits(max_requests=1, max_tokens=None, max_s=None).admit(1, age_s=1e9) is None
