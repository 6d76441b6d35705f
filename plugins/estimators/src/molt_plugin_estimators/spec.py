"""Specs and options of the estimators. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from molt_core.api.facts import CRITIC, REFERENCE_MODEL, ROLLOUT_RATIO, TEACHER, TOKEN_ADVANTAGES, Facts
from molt_core.api.findings import Finding, error
from molt_core.api.options import NoOptions, option, options
from molt_core.api.spec import EstimatorSpec

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

WHITEN_HELP: Final = "shift and scale advantages to mean 0 and variance 1 over all sampled tokens"
GAMMA_HELP: Final = "discount of rewards for each sampled token in between"


@options
class WhitenOptions:
    whiten: bool = option(True, help=WHITEN_HELP)


@options
class KlOptions:
    kl_coef: float = option(0.0, help="weight of a per-token KL penalty in the reward; 0: none", ge=0)
    kl_form: Literal["k1", "k2", "k3"] = option("k1", help="estimate of the KL divergence")
    kl_reference: Literal["model", "sampler"] = option(
        "model", help="against a frozen model (--reference), or against the policy that sampled"
    )
    kl_target: float | None = option(
        None, help="steer the KL coefficient towards this KL per token; default: it stays fixed", gt=0
    )
    kl_horizon: float = option(10_000.0, help="rollouts over which the coefficient adapts", gt=0)


@options
class ReinforceOptions(KlOptions):
    whiten: bool = option(True, help=WHITEN_HELP)
    gamma: float = option(1.0, help=GAMMA_HELP, gt=0, le=1)
    turn_rewards: bool = option(
        False, help="count rewards of turns where they were earned, not all of them at the end"
    )


@options
class GaeOptions(KlOptions):
    whiten: bool = option(True, help=WHITEN_HELP)
    gamma: float = option(1.0, help=GAMMA_HELP, gt=0, le=1)
    lam: float = option(1.0, help="how far ahead rewards are believed rather than values", ge=0, le=1)


@options
class DistillOptions:
    kl_coef: float = option(1.0, help="scale of the advantages", gt=0)


def makes_token_advantages(made: ReinforceOptions) -> bool:
    """Whether more than one number for each rollout is needed."""
    return made.kl_coef > 0 or made.gamma < 1 or made.turn_rewards


def kl_facts(made: KlOptions, *more: str) -> Facts:
    """Who asks for a penalty asks for the model or the pass that it is measured with."""
    measured = REFERENCE_MODEL if made.kl_reference == "model" else ROLLOUT_RATIO
    return Facts(provides=[*more, *([measured] if made.kl_coef > 0 else [])])


def kl_is_steered_from_something(view: PlanView) -> Iterator[Finding]:
    """A steered coefficient is multiplied, and stays 0 if it starts there."""
    (part,) = view.parts["estimators"]
    made: Any = part.options
    if made.kl_target is not None and made.kl_coef == 0:
        yield error(
            "ADV1",
            f"the KL coefficient is to be steered to a KL of {made.kl_target:g}, but it starts at 0 and stays there",
            view.source("estimator.kl_target"),
            view.source("estimator.kl_coef"),
            fix="--estimator.kl-coef 0.001, or leave --estimator.kl-target out",
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
    options=ReinforceOptions,
    facts=lambda made: kl_facts(made, *((TOKEN_ADVANTAGES,) if makes_token_advantages(made) else ())),
    rules=(kl_is_steered_from_something,),
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

FLASH_REINFORCE: Final = EstimatorSpec(
    name="flash_reinforce",
    summary="reward minus the mean of the whole step; for one rollout per prompt",
    api=1,
    factory="molt_plugin_estimators.flash_reinforce:FlashReinforce",
    options=NoOptions,
)

GAE: Final = EstimatorSpec(
    name="gae",
    summary="generalised advantage estimation with a critic",
    api=1,
    factory="molt_plugin_estimators.gae:Gae",
    options=GaeOptions,
    facts=lambda made: kl_facts(made, TOKEN_ADVANTAGES, CRITIC),
    rules=(kl_is_steered_from_something,),
)

ON_POLICY_DISTILL: Final = EstimatorSpec(
    name="on_policy_distill",
    summary="learn from a teacher's log-probs of the policy's own replies",
    api=1,
    factory="molt_plugin_estimators.on_policy_distill:OnPolicyDistill",
    options=DistillOptions,
    facts=lambda _made: Facts(provides=[TOKEN_ADVANTAGES, REFERENCE_MODEL], needs=[TEACHER]),
)
