"""A running gateway over an engine for tests, and a check that the capture is what the engine did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from molt_plugin_gateway.gateway import HttpGateway
from molt_plugin_gateway.session import GatewaySession
from molt_plugin_gateway.spec import GatewayOptions
from template_kit import TEMPLATE_FOLDER, tokenizer
from transformers import PreTrainedTokenizerFast

from molt_core.api.engine import GenerateRequest, Generation
from molt_core.api.gateway import Capture, GatewayContext, Generate, SessionRequest
from molt_core.testing.scripted_engine import Script, ScriptedEngine

Record = Sequence[tuple[GenerateRequest, Generation]]
END_TOKEN_ID = tokenizer().token_to_id("<|im_end|>")


def save_model(folder: Path, template: str = "chatml") -> None:
    """Tokenizer and chat template, no weights."""
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(),
        eos_token="<|im_end|>",
        chat_template=(TEMPLATE_FOLDER / f"{template}.jinja").read_text("utf-8"),
    ).save_pretrained(folder)


@frozen
class Rig:
    gateway: HttpGateway
    generate: Generate

    def open(
        self, rollout_id: str = "rollout", *, max_tokens: int = 256, temperature: float = 1.0, top_logprobs: int = 0,
    ) -> GatewaySession:  # fmt: skip
        return self.gateway.open(
            SessionRequest(
                rollout_id=rollout_id, generate=self.generate, max_tokens=max_tokens, temperature=temperature, seed=0,
                timeout_s=60.0, top_logprobs=top_logprobs,
            )
        )  # fmt: skip


@asynccontextmanager
async def running(
    folder: Path,
    generate: Generate,
    *,
    max_length: int = 8192,
    end_token_id: int = END_TOKEN_ID,
    **options: Any,
) -> AsyncIterator[Rig]:
    context = GatewayContext(model_folder=str(folder), max_length=max_length, end_token_ids=(end_token_id,))
    gateway = HttpGateway(GatewayOptions(**options), context)
    await gateway.start()
    try:
        yield Rig(gateway, generate)
    finally:
        await gateway.stop()


def scripted(folder: Path, script: Script, *, max_length: int = 8192) -> ScriptedEngine:
    return ScriptedEngine(folder, script, end_token_id=END_TOKEN_ID, max_length=max_length)


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def assert_exact(capture: Capture, record: Record) -> None:
    """Each reply of the engine stands after its very prompt, and each of its tokens was captured once."""
    parts = [*capture.segments, *(each.segment for each in capture.left_out)]
    captured: Counter[tuple[int, float, int]] = Counter()
    for part in parts:
        own = part.sampled
        captured.update(
            zip(
                part.token_ids[own].tolist(),
                part.logprobs[own].tolist(),
                part.versions[own].tolist(),
                strict=True,
            )
        )
        assert not part.logprobs[~own].any()
        assert (part.versions[~own] == -1).all()
    generated: Counter[tuple[int, float, int]] = Counter()
    for request, reply in record:
        generated.update(
            zip(reply.token_ids.tolist(), reply.logprobs.tolist(), reply.versions.tolist(), strict=True)
        )
        given = np.asarray(request.token_ids, np.int32)
        whole = np.concatenate([given, reply.token_ids])
        reply_at = slice(len(given), len(whole))
        assert any(
            np.array_equal(part.token_ids[: len(whole)], whole)
            and part.sampled[reply_at].all()
            and np.array_equal(part.logprobs[reply_at], reply.logprobs)
            and np.array_equal(part.versions[reply_at], reply.versions)
            for part in parts
        ), f"{request.request_id} was not captured as it was"
    assert captured == generated
