"""A real harness, a real model, real vLLM: what was captured is the engine's own record, bit by bit."""

from __future__ import annotations

import pytest
from gateway_kit import assert_exact
from molt_plugin_models.smollm2 import SmolLM2
from vllm_kit import over_vllm

from molt_core.api.options import NoOptions
from molt_core.launch.model_process import cache_root
from tests.harnesses.harnesses import HARNESSES
from tests.harnesses.kit import END_TOKEN_ID, TIMEOUT_S, run

MAX_STEPS = 4
"""Of the driver."""


@pytest.mark.harness
async def test_smolagents_over_smollm2() -> None:
    folder = SmolLM2(NoOptions()).prepare(cache_root())
    async with over_vllm(folder, end_token_id=END_TOKEN_ID, max_length=4096, kv_cache_gib=0.5) as made:
        session = made.rig.open("rollout", max_tokens=64)
        result = await run(HARNESSES["smolagents-tools"], session, timeout_s=TIMEOUT_S)
        capture, mine = await session.close(), made.of("rollout")
    assert not result.truncated
    # a model of this size calls the tool well or badly, and one call more follows the last step
    assert 1 <= len(mine) <= MAX_STEPS + 1
    assert_exact(capture, mine)
    assert sum(segment.num_sampled for segment in capture.segments) > 0
