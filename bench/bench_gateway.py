"""What the gateway costs: latency of a call, throughput, matching, memory of sessions. All numbers of one run.

    .venv/bin/python bench/bench_gateway.py [--without-engine]

Latency and memory use an engine that answers at once, so what is left is the gateway: HTTP, JSON, matching,
rendering, tokenizing, parsing. Throughput uses vLLM with SmolLM2 and replays to the engine exactly the requests
that it got through the gateway, in turns, without prefix caching so that the second has no advantage.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from molt_plugin_gateway.gateway import HttpGateway
from molt_plugin_gateway.session import GatewaySession
from molt_plugin_gateway.spec import GatewayOptions
from molt_plugin_models.smollm2 import SmolLM2

from molt_core.api.engine import EngineContext, GenerateRequest, Generation
from molt_core.api.gateway import GatewayContext, Generate, SessionRequest
from molt_core.api.options import NoOptions
from molt_core.launch.model_process import cache_root
from molt_core.launch.prepared_model import end_token_ids

NUM_SESSIONS = 64
NUM_TURNS = 2
MAX_TOKENS = 24
WORDS = "the gateway records every token that the policy samples while an agent works".split()  # noqa: SIM905


class Instant:
    """Answers every request with the same eight tokens."""

    def __init__(self, end: int) -> None:
        ids = [500, 501, 502, 503, 504, 505, 506, end]
        self._generation = Generation(
            token_ids=ids, logprobs=[-1.0] * len(ids), versions=[0] * len(ids), finish_reason="stop"
        )

    async def generate(self, request: GenerateRequest) -> Generation:
        return self._generation


class Client:
    """One kept connection, as little work as possible."""

    def __init__(self, session: GatewaySession) -> None:
        self._url = urlsplit(session.base_url)
        self._key = session.api_key

    async def post(self, body: bytes) -> dict[str, Any]:
        if not hasattr(self, "_reader"):
            self._reader, self._writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        head = (
            f"POST {self._url.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self._key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        headers = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert headers.startswith("http/1.1 200"), headers
        length = int(headers.split("content-length:")[1].split("\r\n")[0])
        read: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        return read

    def close(self) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()


def text(num_tokens: int, salt: int = 0) -> str:
    return f"{salt} " + " ".join(WORDS[number % len(WORDS)] for number in range(num_tokens))


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def session_of(gateway: HttpGateway, name: str, generate: Generate, max_tokens: int = 512) -> GatewaySession:
    return gateway.open(
        SessionRequest(
            rollout_id=name,
            generate=generate,
            max_tokens=max_tokens,
            temperature=1.0,
            seed=0,
            timeout_s=600.0,
        )
    )


def memory_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def latency(gateway: HttpGateway, engine: Instant, num_tokens: int, num_calls: int = 40) -> list[float]:
    """Milliseconds of each call that continues a conversation of `num_tokens` by 50."""
    session = session_of(gateway, f"latency-{num_tokens}", engine.generate)
    client = Client(session)
    messages = [{"role": "system", "content": "Be brief."}]
    for number in range(8):
        messages.append(user(text(num_tokens // 8, number)))
        reply = await client.post(json.dumps({"messages": messages}).encode())
        messages.append(reply["choices"][0]["message"])
    times = []
    for number in range(num_calls):
        messages.append(user(text(50, number)))
        body = json.dumps({"messages": messages}).encode()
        started = time.perf_counter()
        reply = await client.post(body)
        times.append(1000 * (time.perf_counter() - started))
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > num_tokens / 2, (
            "history was not matched"
        )
        messages.append(reply["choices"][0]["message"])
        if len(messages) > 40:  # back to the length asked for
            messages = messages[:17]
    client.close()
    await session.close()
    return times


async def matching(gateway: HttpGateway, engine: Instant) -> list[tuple[int, int, float]]:
    """(turns of history, samples in the session, milliseconds of `prepare` of one new turn)."""
    from molt_plugin_gateway.wires import WIRES

    found = []
    wire = WIRES["/chat/completions"]()
    for num_turns in (8, 32, 128):
        session = session_of(gateway, f"match-{num_turns}", engine.generate)
        messages: list[dict[str, Any]] = []
        for number in range(num_turns):
            messages.append(user(text(20, number)))
            messages.append((await session.chat(messages)).message)
        call = wire.read({"messages": [*messages, user("and now?")]}, {})
        times = []
        for _ in range(20):
            started = time.perf_counter()
            session._sampling.forest.prepare(call)
            times.append(1000 * (time.perf_counter() - started))
        found.append((2 * num_turns, session.num_samples, statistics.median(times)))
        await session.close()
    return found


async def open_sessions(gateway: HttpGateway, engine: Instant, number: int) -> float:
    before = memory_mb()
    sessions = [session_of(gateway, f"open-{index}", engine.generate) for index in range(number)]
    for index, session in enumerate(sessions):
        messages = [user(text(1000, index))]
        reply = await session.chat(messages)
        await session.chat([*messages, reply.message, user("go on")])
    print(
        f"  {number} open sessions of 2 turns and 1,000 tokens: {memory_mb():.0f} MB ({before:.0f} MB before)"
    )
    used = memory_mb()
    for session in sessions:
        await session.close()
    return used


async def finished_sessions(gateway: HttpGateway, engine: Instant, number: int) -> list[float]:
    seen = []
    for index in range(number):
        session = session_of(gateway, f"done-{index}", engine.generate)
        client = Client(session)
        await client.post(json.dumps({"messages": [user(text(100, index))]}).encode())
        client.close()
        await session.close()
        if (index + 1) % (number // 4) == 0:
            seen.append(memory_mb())
            print(f"  after {index + 1} finished sessions: {seen[-1]:.0f} MB")
    return seen


async def through_gateway(
    gateway: HttpGateway, generate: Generate, run: int
) -> tuple[float, int, list[list[GenerateRequest]]]:
    """Seconds, sampled tokens, and the engine's requests by session."""
    asked: list[list[GenerateRequest]] = [[] for _ in range(NUM_SESSIONS)]
    num_tokens = 0

    async def agent(number: int) -> None:
        nonlocal num_tokens

        async def record(request: GenerateRequest) -> Generation:
            asked[number].append(request)
            return await generate(request)

        session = session_of(gateway, f"run-{run}-{number}", record, MAX_TOKENS)
        client = Client(session)
        messages = [user(f"Tell me about the number {number}.")]
        for _ in range(NUM_TURNS):
            reply = await client.post(json.dumps({"messages": messages}).encode())
            num_tokens += reply["usage"]["completion_tokens"]
            messages += [reply["choices"][0]["message"], user("And what else?")]
        client.close()
        await session.close()

    started = time.perf_counter()
    # requests to a dead engine wait for the end of their session
    async with asyncio.timeout(120):
        await asyncio.gather(*(agent(number) for number in range(NUM_SESSIONS)))
    return time.perf_counter() - started, num_tokens, asked


async def straight(
    generate: Generate, asked: Sequence[Sequence[GenerateRequest]], run: int
) -> tuple[float, int]:
    num_tokens = 0

    async def replay(requests: Sequence[GenerateRequest]) -> None:
        nonlocal num_tokens
        from attrs import evolve

        for request in requests:
            generation = await generate(evolve(request, request_id=f"direct-{run}-{request.request_id}"))
            num_tokens += len(generation.token_ids)

    started = time.perf_counter()
    await asyncio.gather(*(replay(requests) for requests in asked))
    return time.perf_counter() - started, num_tokens


async def throughput(gateway: HttpGateway, folder: Path, ends: tuple[int, ...]) -> float:
    from molt_plugin_vllm.engine import VllmEngine
    from molt_plugin_vllm.spec import VllmOptions

    context = EngineContext(
        model_folder=str(folder), dtype="bfloat16", max_length=1024, max_concurrency=NUM_SESSIONS, seed=0, index=0,
        num_threads=2, end_token_ids=ends,
    )  # fmt: skip
    engine = VllmEngine(VllmOptions(prefix_caching=False), context)
    await engine.start()
    ratios = []
    try:
        await through_gateway(gateway, engine.generate, -1)
        for run in range(3):
            seconds, num_tokens, asked = await through_gateway(gateway, engine.generate, run)
            direct_s, direct_tokens = await straight(engine.generate, asked, run)
            ratios.append((num_tokens / seconds) / (direct_tokens / direct_s))
            print(
                f"  run {run}: {num_tokens} tokens in {seconds:.2f} s through the gateway, {direct_tokens} in "
                f"{direct_s:.2f} s straight: {100 * ratios[-1]:.1f} %"
            )
    finally:
        await engine.stop()
    return statistics.median(ratios)


async def main(with_engine: bool) -> int:
    folder = SmolLM2(NoOptions()).prepare(cache_root())
    ends = end_token_ids(folder)
    gateway = HttpGateway(
        GatewayOptions(max_requests=10_000_000),
        GatewayContext(model_folder=str(folder), max_length=131_072, end_token_ids=ends),
    )
    await gateway.start()
    engine = Instant(ends[0])
    kept = []
    print("latency that the gateway adds to a call, median (95th percentile)")
    for num_tokens, bound in ((2_000, 3.0), (32_000, 15.0)):
        times = await latency(gateway, engine, num_tokens)
        median, tail = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        kept.append(median <= bound)
        print(f"  {num_tokens} tokens of history: {median:.2f} ms ({tail:.2f} ms), bound {bound:g} ms")
    print("matching and rendering of one new turn")
    for num_turns, num_samples, milliseconds in await matching(gateway, engine):
        print(f"  {num_turns} turns, {num_samples} samples: {milliseconds:.2f} ms")
    print("memory")
    kept.append(await open_sessions(gateway, engine, 2_000) < 1000)
    seen = await finished_sessions(gateway, engine, 20_000)
    kept.append(seen[-1] < 1.05 * seen[0])
    if with_engine:
        print(f"throughput, {NUM_SESSIONS} sessions at once, vLLM with SmolLM2")
        ratio = await throughput(gateway, folder, ends)
        kept.append(ratio >= 0.95)
        print(f"  median {100 * ratio:.1f} %, bound 95 %")
    await gateway.stop()
    print("all within bounds" if all(kept) else "MISSED")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main("--without-engine" not in sys.argv)))
