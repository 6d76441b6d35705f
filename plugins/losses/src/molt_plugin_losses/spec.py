"""Specs and options of the losses. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

from typing import Final, Literal

from molt_core.api.facts import SAMPLED_LOGPROBS, Facts
from molt_core.api.options import option, options
from molt_core.api.spec import LossSpec


@options
class PpoOptions:
    clip_low: float = option(0.2, help="how far below 1 the ratio counts", ge=0, lt=1)
    clip_high: float = option(0.2, help="how far above 1 the ratio counts", ge=0)
    aggregation: Literal["token-mean"] = option(
        "token-mean", help="every sampled token of the optimizer step has equal weight"
    )


PPO: Final = LossSpec(
    name="ppo",
    summary="clipped surrogate against the log-probabilities that the engine sampled with",
    api=1,
    factory="molt_plugin_losses.ppo:PpoLoss",
    options=PpoOptions,
    facts=lambda _options: Facts(needs={SAMPLED_LOGPROBS}),
)
