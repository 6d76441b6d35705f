"""A model that can talk, through both SDKs: what it says makes sense, and is captured as it was sampled."""

from __future__ import annotations

import pytest
from gateway_kit import assert_exact
from molt_plugin_models.smollm2 import SmolLM2
from sdk_kit import MODES, Mode, ask
from transformers import AutoTokenizer
from vllm_kit import over_vllm

from molt_core.api.options import NoOptions
from molt_core.launch.model_process import cache_root

QUESTIONS = ("What is the capital of France?", "And of Italy?")


@pytest.mark.real
async def test_smollm2_talks_over_all_wires_in_one_conversation_each() -> None:
    folder = SmolLM2(NoOptions()).prepare(cache_root())
    end_token_id = AutoTokenizer.from_pretrained(folder).eos_token_id
    modes: list[Mode] = [mode for mode in MODES if mode.stream and not mode.sync]
    async with over_vllm(folder, end_token_id=end_token_id) as served:
        for mode in modes:
            session = served.rig.open(str(mode), max_tokens=48, temperature=0.0)
            history = [{"role": "user", "content": QUESTIONS[0]}]
            first = await ask(session, mode, history)
            assert "Paris" in first.text
            second = await ask(session, mode, [*first.history, {"role": "user", "content": QUESTIONS[1]}])
            assert second.text
            capture = await session.close()
            assert_exact(capture, served.of(str(mode)))
            assert len(capture.segments) == 1
