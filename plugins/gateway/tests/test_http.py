"""What the server does with bad input, lost clients, closed sessions and lost engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import pytest_asyncio
from gateway_kit import Rig, assert_exact, running, save_model, scripted, until
from molt_plugin_gateway.session import GatewaySession

from molt_core.errors import PreflightError, RunError
from molt_core.testing.scripted_engine import ScriptedEngine

ROUTES = ("chat/completions", "responses", "messages")
HELLO = [{"role": "user", "content": "Hello?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    save_model(made)
    return made


class Stage:
    """A gateway whose engine says `Answer N.` once `go` is set."""

    def __init__(self, rig: Rig, engine: ScriptedEngine, go: asyncio.Event) -> None:
        self.rig = rig
        self.engine = engine
        self.go = go


@pytest_asyncio.fixture
async def stage(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    go = asyncio.Event()
    go.set()

    async def script(prompt: str, number: int) -> str | Exception:
        await go.wait()
        return RunError("the engine died") if "die" in prompt else f"Answer {number}."

    engine = scripted(folder, script)
    async with running(folder, engine.generate, keepalive_s=0.05, **getattr(request, "param", {})) as rig:
        yield Stage(rig, engine, go)


def body(route: str, **more: Any) -> dict[str, Any]:
    turns = {"input" if route == "responses" else "messages": more.pop("turns", HELLO)}
    return {"model": "policy", **turns, **({"max_tokens": 100} if route == "messages" else {}), **more}


async def post(session: GatewaySession, route: str, content: Any, **headers: str) -> httpx.Response:
    sent = content if isinstance(content, bytes) else json.dumps(content).encode()
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.post(
            f"{session.base_url}/{route}",
            content=sent,
            headers={"content-type": "application/json", **headers},
        )


def assert_refused(reply: httpx.Response, route: str, message: str, status: int = 400) -> None:
    error = reply.json()
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/json"
    assert message in error["error"]["message"]
    if "messages" in route:
        assert error["type"] == "error"
        assert error["error"]["type"].endswith(("_error", "request_too_large"))
    else:
        assert set(error["error"]) == {"message", "type", "param", "code"}


BAD = {
    "malformed": (b'{"model": "policy", ', "not valid JSON"),
    "empty": (b"", "not valid JSON"),
    "no object": (b"[]", "must be a JSON object, got list"),
    "not UTF-8": (b'{"model": "\xff\xfe"}', "not valid UTF-8"),
    "deep": (b'{"model": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "huge number": (b'{"model": "policy", "max_tokens": ' + b"9" * 5000 + b"}", "not valid JSON"),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", BAD)
async def test_a_bad_body_is_refused_in_the_wires_shape_and_the_session_goes_on(
    stage: Stage, route: str, case: str
) -> None:
    session = stage.rig.open()
    content, message = BAD[case]
    assert_refused(await post(session, route, content), route, message)
    assert (await post(session, route, body(route))).status_code == 200
    assert_exact(await session.close(), stage.engine.record)


@pytest.mark.parametrize("route", [*ROUTES, "messages/count_tokens"])
async def test_what_json_may_nest_is_refused_where_it_is_too_deep_for_us(stage: Stage, route: str) -> None:
    session = stage.rig.open()
    for depth in (100, 300, 900, 960, 980, 990):
        schema = {"type": "object", "default": "@"}
        tool = {"name": "look", "input_schema": schema}
        if not route.startswith("messages"):
            function = {"name": "look", "parameters": schema}
            tool = {"type": "function", **function, "function": function}
        sent = json.dumps(body(route, tools=[tool])).replace('"@"', "[" * depth + "]" * depth)
        reply = await post(session, route, sent.encode())
        assert reply.status_code == 200 or "nested" in reply.text
    assert (await post(session, "responses", body("responses"))).status_code == 200
    assert not session._failure.done()


@pytest.mark.parametrize("route", ROUTES)
async def test_other_bodies_than_plain_json_are_refused(stage: Stage, route: str) -> None:
    session = stage.rig.open()
    for headers in ({"content-type": "text/plain"}, {"content-encoding": "gzip"}):
        assert_refused(await post(session, route, body(route), **headers), route, "must be plain JSON")


async def test_a_body_over_64_mib_is_refused_and_one_under_it_is_read(stage: Stage) -> None:
    session = stage.rig.open()
    for num_bytes, status in ((64 * 2**20 + 1, 413), (64 * 2**20, 400)):
        sent = b'{"model": "' + b"x" * (num_bytes - 13) + b'"}'
        assert len(sent) == num_bytes
        reply = await post(session, "messages", sent)
        wanted = "the limit is 67108864" if status == 413 else "messages"
        assert_refused(reply, "messages", wanted, status)
    assert reply.json()["error"]["type"] == "invalid_request_error"


async def test_unknown_routes_and_methods_are_refused_as_the_client_speaks(stage: Stage) -> None:
    session = stage.rig.open()
    assert_refused(await post(session, "embeddings", {}), "", "/chat/completions", 404)
    spoken = await post(session, "complete", {}, **{"anthropic-version": "2023-06-01"})
    assert_refused(spoken, "messages", "no route", 404)
    async with httpx.AsyncClient() as client:
        assert_refused(await client.get(f"{session.base_url}/messages"), "messages", "use POST", 405)


async def test_unsupported_content_is_refused_with_its_place(stage: Stage) -> None:
    session = stage.rig.open()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for part in (image, {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}):
        turns = [{"role": "user", "content": [part]}]
        reply = await post(session, "chat/completions", body("chat", turns=turns))
        assert reply.status_code == 400
        assert reply.json()["error"]["param"].startswith("messages.0.content")


async def test_half_a_surrogate_pair_is_read(stage: Stage) -> None:
    session = stage.rig.open()
    sent = json.dumps(
        body("messages", turns=[{"role": "user", "content": "cut: \ud83d, whole: 😀"}])
    ).encode()
    assert (await post(session, "messages", sent)).status_code == 200
    assert (await session.close()).prompt_text == "cut: ?, whole: 😀"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_longer_than_the_context_has_the_documented_wording(
    folder: Path, stream: bool
) -> None:
    engine = scripted(folder, lambda prompt, number: "Answer.", max_length=100)
    async with running(folder, engine.generate, max_length=100) as rig:
        session = rig.open()
        turns = [{"role": "user", "content": "long " * 100}]
        for route in ROUTES:
            reply = await post(session, route, body(route, turns=turns, stream=stream))
            wanted = "prompt is too long: " if route == "messages" else "maximum context length is 100 tokens"
            assert_refused(reply, route, wanted)
            if route != "messages":
                assert reply.json()["error"]["code"] == "context_length_exceeded"
        counted = await post(session, "messages/count_tokens", body("count", turns=turns))
        assert counted.json()["input_tokens"] > 400
        assert (await session.close()).truncated


async def test_prefix_or_key_find_the_session_and_open_no_other(stage: Stage) -> None:
    a, b = stage.rig.open("a"), stage.rig.open("b")
    root = a.base_url.removesuffix(f"/s/{a.prefix}/v1")
    bearer = "authorization"
    cases = [
        (a.base_url, {}, 200),
        (a.base_url, {bearer: "Bearer placeholder"}, 200),
        (a.base_url, {"x-api-key": a.api_key}, 200),
        (f"{a.base_url}/v1", {bearer: f"Bearer {a.api_key}"}, 200),
        (a.anthropic_base_url, {}, 200),
        (root, {bearer: f"Bearer {a.api_key}"}, 200),
        (f"{root}/v1", {"x-api-key": a.api_key}, 200),
        (f"{root}/v1/v1", {bearer: "Bearer placeholder", "x-api-key": a.api_key}, 200),
        (a.base_url, {"x-api-key": b.api_key}, 400),
        (a.base_url, {bearer: f"Bearer {b.api_key}", "x-api-key": a.api_key}, 400),
        (root, {bearer: "Bearer placeholder"}, 400),
        (root, {}, 400),
        (f"{root}/s/{'0' * 32}/v1", {bearer: f"Bearer {a.api_key}"}, 400),
        (f"{root}/s/{a.prefix[:-1]}/v1", {}, 400),
        (root, {"x-api-key": a.api_key[:-1]}, 400),
    ]
    async with httpx.AsyncClient() as client:
        for number, (base, headers, status) in enumerate(cases):
            reply = await client.post(f"{base}/chat/completions", json=body("chat"), headers=headers)
            assert (number, reply.status_code) == (number, status)
    assert len((await a.close()).segments) == 8
    assert not (await b.close()).segments


@pytest.mark.parametrize("route", ROUTES)
async def test_a_closed_session_refuses_and_says_so(stage: Stage, route: str) -> None:
    session = stage.rig.open()
    await session.close()
    assert_refused(await post(session, route, body(route)), route, "This session is closed")


async def test_probes_models_and_counting(stage: Stage) -> None:
    session = stage.rig.open()
    root = session.anthropic_base_url
    async with httpx.AsyncClient() as client:
        for path in ("/", "", "/health", "/api/hello", "/v1/health"):
            for method in ("GET", "HEAD"):
                assert (await client.request(method, root + path)).status_code == 200
        models = (await client.get(f"{session.base_url}/models")).json()
        assert [model["id"] for model in models["data"]] == [session.model]
        assert (await client.get(f"{session.base_url}/models/policy")).json()["id"] == session.model
    counted = await post(session, "messages/count_tokens?beta=true", {"model": "policy", "messages": HELLO})
    await post(session, "messages", body("messages"))
    ((request, _),) = stage.engine.record
    assert counted.json() == {"input_tokens": len(request.token_ids)}


async def test_a_stream_begins_at_once_and_is_kept_alive_with_real_events(stage: Stage) -> None:
    session = stage.rig.open()
    stage.go.clear()
    async with httpx.AsyncClient(timeout=30) as client:
        for route in ROUTES:
            stage.go.clear()
            async with client.stream(
                "POST", f"{session.base_url}/{route}", json=body(route, stream=True)
            ) as reply:
                assert reply.headers["content-type"].startswith("text/event-stream")
                events = [line async for line in _some_lines(reply, 6)]
                # the answer is not there yet
                assert not any("Answer" in event for event in events)
                assert all(not line.startswith(":") for line in events)
                stage.go.set()
                rest = [line async for line in reply.aiter_lines()]
            assert any("Answer" in line for line in rest)
    assert all(sample.delivered for sample in session._sampling.forest.samples)


async def _some_lines(reply: httpx.Response, num_events: int) -> AsyncIterator[str]:
    # an iterator of httpx can be used once, so what is left is read by it too
    lines = reply.aiter_lines()
    reply.aiter_lines = lambda: lines  # type: ignore[method-assign, assignment]
    while num_events:
        line = await anext(lines)
        num_events -= line.startswith("data:")
        yield line


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ROUTES)
async def test_a_repeat_after_a_lost_connection_gets_the_same_sample(
    stage: Stage, route: str, stream: bool
) -> None:
    session = stage.rig.open()
    stage.go.clear()
    first = asyncio.create_task(post(session, route, body(route, stream=stream)))
    await until(lambda: stage.engine.num_in_flight == 1)
    first.cancel()
    (attempts,) = session._attempts._by_key.values()
    await until(lambda: not attempts[0].live)
    # the repeat differs in how the answer is sent only
    second = asyncio.create_task(post(session, route, body(route, stream=not stream)))
    await until(lambda: attempts[0].live)
    stage.go.set()
    assert "Answer 0." in (await second).text
    # that one was delivered, so this is a new sample
    assert "Answer 1." in (await post(session, route, body(route, stream=stream))).text
    assert stage.engine.num_calls == 2
    assert [sample.delivered for sample in session._sampling.forest.samples] == [True, True]
    assert len(session._attempts) == 0
    assert_exact(await session.close(), stage.engine.record)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_client_that_leaves_in_mid_stream_harms_nobody(stage: Stage, route: str) -> None:
    session, other = stage.rig.open("left"), stage.rig.open("other")
    stage.go.clear()
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("POST", f"{session.base_url}/{route}", json=body(route, stream=True)) as reply,
    ):
        assert [line async for line in _some_lines(reply, 2)]
    (attempts,) = session._attempts._by_key.values()
    await until(lambda: not attempts[0].live)
    stage.go.set()
    await until(lambda: len(session._sampling.forest.samples) == 1)
    assert not session._sampling.forest.samples[0].delivered
    assert (await post(other, route, body(route))).status_code == 200
    assert "Answer 0." in (await post(session, route, body(route, stream=True))).text
    assert session._sampling.forest.samples[0].delivered


async def test_an_answer_that_nobody_waited_for_is_kept_for_the_repeat_and_marked_without_one(
    stage: Stage,
) -> None:
    session, route = stage.rig.open(), "chat/completions"
    other = [{"role": "user", "content": "Anyone?"}]
    for turns in (HELLO, other):
        stage.go.clear()
        lost = asyncio.create_task(post(session, route, body(route, turns=turns)))
        await until(lambda: stage.engine.num_in_flight == 1)
        lost.cancel()
        (attempts,) = (each for each in session._attempts._by_key.values() if each[0].live)
        await until(lambda seen=attempts: not seen[0].live)
        stage.go.set()
        await until(lambda: stage.engine.num_in_flight == 0)
    assert "Answer 0." in (await post(session, route, body(route))).text
    assert [sample.delivered for sample in session._sampling.forest.samples] == [True, False]
    capture = await session.close()
    assert_exact(capture, stage.engine.record)
    assert capture.info["orphans"] == 1


async def test_closing_cancels_what_is_in_flight_and_records_nothing_of_it(stage: Stage) -> None:
    session = stage.rig.open()
    await post(session, "messages", body("messages"))
    stage.go.clear()
    plain = asyncio.create_task(post(session, "messages", body("messages")))
    streamed = {
        route: asyncio.create_task(post(session, route, body(route, stream=True))) for route in ROUTES
    }
    await until(lambda: stage.engine.num_in_flight == 4)
    # long enough for the headers of the streams to be out
    await asyncio.sleep(0.6)
    capture = await session.close()
    assert stage.engine.num_in_flight == 0
    assert_refused(await plain, "messages", "This session is closed")
    for reply in streamed.values():
        assert (await reply).status_code == 200
        assert "This session is closed" in (await reply).text
    assert_exact(capture, stage.engine.record)
    assert await session.close() is capture


async def test_a_lost_engine_ends_the_session_and_not_the_request(stage: Stage) -> None:
    session = stage.rig.open()
    waiting = asyncio.create_task(
        post(session, "messages", body("messages", turns=[{"role": "user", "content": "die"}]))
    )
    error = await session.failed()
    assert isinstance(error, RunError)
    assert str(error) == "the engine died"
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert not (await session.close()).segments
    assert_refused(await waiting, "messages", "This session is closed")


async def test_what_the_engine_refuses_is_a_400(folder: Path) -> None:
    engine = scripted(folder, lambda prompt, number: ValueError("the schema can't be followed"))
    async with running(folder, engine.generate) as rig:
        session = rig.open()
        for stream in (False, True):
            reply = await post(session, "messages", body("messages", stream=stream))
            assert_refused(reply, "messages", "the schema can't be followed")
        assert not session._failure.done()


@pytest.mark.parametrize("stage", [{"max_requests": 2}], indirect=True)
async def test_a_session_over_its_limit_refuses_and_keeps_what_it_has(stage: Stage) -> None:
    session = stage.rig.open()
    for status in (200, 200, 400):
        reply = await post(session, "messages", body("messages"))
        assert reply.status_code == status
    assert_refused(reply, "messages", "--gateway.max-requests")
    assert len((await session.close()).segments) == 2


@pytest.mark.parametrize("stage", [{"max_session_tokens": 12}], indirect=True)
async def test_replies_are_cut_to_the_tokens_that_a_session_has_left(stage: Stage) -> None:
    session = stage.rig.open()
    first, second, third = [(await post(session, "messages", body("messages"))) for _ in range(3)]
    assert [first.json()["stop_reason"], second.json()["stop_reason"]] == ["end_turn", "max_tokens"]
    assert_refused(third, "messages", "--gateway.max-session-tokens")
    assert sum(len(reply.token_ids) for _, reply in stage.engine.record) == 12


async def test_it_listens_on_loopback_only_and_nowhere_after_stop(folder: Path) -> None:
    def listening() -> set[str]:
        return {
            connection.laddr.ip
            for connection in psutil.Process().net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }

    before = listening()
    engine = scripted(folder, lambda prompt, number: "Answer.")
    async with running(folder, engine.generate) as rig:
        assert listening() - before <= {"127.0.0.1"}
        session = rig.open()
        assert session.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(httpx.ConnectError):
        await post(session, "messages", body("messages"))
    with pytest.raises(PreflightError, match=r"--gateway\.host"):
        async with running(folder, engine.generate, host="192.0.2.1"):
            pass
    with pytest.raises(ValueError, match="must be one address"):
        async with running(folder, engine.generate, host="0.0.0.0"):
            pass
