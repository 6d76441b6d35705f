"""Spec of the engine `transformers`. Imports nothing heavy."""

from __future__ import annotations

from typing import Final

from molt_core.api.facts import SAMPLED_LOGPROBS, TOP_LOGPROBS, Facts
from molt_core.api.options import NoOptions
from molt_core.api.spec import EngineSpec


def _facts(_options: NoOptions) -> Facts:
    return Facts(provides={SAMPLED_LOGPROBS, TOP_LOGPROBS})


TRANSFORMERS: Final = EngineSpec(
    name="transformers",
    summary="transformers in the engine's own process; for small models and debugging",
    api=1,
    factory="molt_plugin_transformers.engine:TransformersEngine",
    facts=_facts,
    aliases=("hf",),
)
