"""Specs and options of the estimators. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

from typing import Final

from molt_core.api.options import NoOptions, option, options
from molt_core.api.spec import EstimatorSpec


@options
class WhitenOptions:
    whiten: bool = option(
        True, help="shift and scale advantages to mean 0 and variance 1 over all sampled tokens"
    )


@options
class GrpoOptions:
    eps: float = option(1e-9, help="added to a group's standard deviation before dividing by it", gt=0)


REINFORCE_PP: Final = EstimatorSpec(
    name="reinforce++",
    aliases=("reinforce", "reinforce-pp"),
    summary="the reward itself, whitened over all sampled tokens; works with one rollout per prompt",
    api=1,
    factory="molt_plugin_estimators.reinforce_pp:ReinforcePP",
    options=WhitenOptions,
)

REINFORCE_PP_BASELINE: Final = EstimatorSpec(
    name="reinforce++-baseline",
    aliases=("reinforce_baseline",),
    summary="reward minus the mean of its prompt, whitened over all sampled tokens",
    api=1,
    factory="molt_plugin_estimators.reinforce_pp_baseline:ReinforcePPBaseline",
    options=WhitenOptions,
    needs_groups=True,
)

GRPO: Final = EstimatorSpec(
    name="grpo",
    summary="reward minus the mean of its prompt, divided by the standard deviation of its prompt",
    api=1,
    factory="molt_plugin_estimators.grpo:Grpo",
    options=GrpoOptions,
    needs_groups=True,
)

DR_GRPO: Final = EstimatorSpec(
    name="dr_grpo",
    summary="reward minus the mean of its prompt",
    api=1,
    factory="molt_plugin_estimators.dr_grpo:DrGrpo",
    options=NoOptions,
    needs_groups=True,
)

RLOO: Final = EstimatorSpec(
    name="rloo",
    summary="reward minus the mean of the other rollouts of its prompt",
    api=1,
    factory="molt_plugin_estimators.rloo:Rloo",
    options=NoOptions,
    needs_groups=True,
)
