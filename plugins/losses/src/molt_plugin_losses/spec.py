"""Specs and options of the losses. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from molt_core.api.facts import (
    CENTERING_TERM,
    CORRECTED,
    CRITIC,
    ENTROPY_GRADIENT,
    REFERENCE_MODEL,
    ROLLOUT_RATIO,
    SAMPLED_LOGPROBS,
    TEACHER,
    TOKEN_ADVANTAGES,
    TOP_LOGPROBS,
    Facts,
)
from molt_core.api.findings import Finding, Source, error
from molt_core.api.options import option, options
from molt_core.api.spec import EstimatorSpec, LossSpec

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView


@options
class AggregationOptions:
    """What every loss has."""

    aggregation: Literal[
        "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "prompt-mean-token-mean"
    ] = option("token-mean", help="how tokens are weighted: by token, by rollout or by prompt")


@options
class LossOptions(AggregationOptions):
    """What every policy loss has."""

    entropy_coef: float = option(0.0, help="weight of the entropy bonus")
    kl_coef: float = option(0.0, help="weight of a KL penalty in the loss; 0: none", ge=0)
    kl_form: Literal["k1", "k2", "k3"] = option("k3", help="estimate of the KL divergence")
    kl_reference: Literal["model", "sampler"] = option(
        "model", help="against a frozen model (--reference), or against the policy that sampled"
    )
    kl_target: float | None = option(
        None, help="steer the KL coefficient towards this KL per token; default: it stays fixed", gt=0
    )
    kl_horizon: float = option(10_000.0, help="rollouts over which the coefficient adapts", gt=0)


@options
class ClippedOptions(LossOptions):
    clip_low: float = option(0.2, help="how far below 1 the ratio counts", ge=0, lt=1)
    clip_high: float = option(0.2, help="how far above 1 the ratio counts", ge=0)


@options
class PpoOptions(ClippedOptions):
    dual_clip: float | None = option(
        None, help="bound of the loss of bad tokens, in units of their advantage; default: none", gt=1
    )


@options
class GspoOptions(ClippedOptions):
    # the paper's; ratios of whole rollouts are close to 1
    clip_low: float = option(3e-4, help="how far below 1 the rollout's ratio counts", ge=0, lt=1)
    clip_high: float = option(4e-4, help="how far above 1 the rollout's ratio counts", ge=0)


@options
class CispoOptions(LossOptions):
    cap: float = option(2.0, help="most that a ratio may weigh; absolute", ge=1)


@options
class TopkReverseKlOptions(AggregationOptions):
    top_k: int = option(20, help="likeliest tokens at which policy and teacher are compared", ge=1)


def loss_facts(options: LossOptions, *, rollout_ratio: bool = False) -> Facts:
    needs = {SAMPLED_LOGPROBS}
    provides = {CENTERING_TERM}
    if options.kl_coef > 0 and options.kl_reference == "model":
        provides.add(REFERENCE_MODEL)
    if options.entropy_coef != 0:
        provides.add(ENTROPY_GRADIENT)
    if rollout_ratio:
        provides.add(ROLLOUT_RATIO)
    return Facts(needs=needs, provides=provides)


def kl_makes_sense(view: PlanView) -> Iterator[Finding]:
    """k1 against the sampler has the gradient −log π of its own samples: it would push the policy away from them."""
    (part,) = view.parts["losses"]
    made: Any = part.options
    if made.kl_coef > 0 and made.kl_form == "k1" and made.kl_reference == "sampler":
        yield error(
            "LOSS1",
            "k1 as a loss against the sampling policy has the wrong sign: its gradient lowers the probability "
            "of every sampled token",
            view.source("loss.kl_form"),
            view.source("loss.kl_reference"),
            fix="--loss.kl-form k3, or --loss.kl-reference model",
        )


def kl_is_steered_from_something(view: PlanView) -> Iterator[Finding]:
    """A steered coefficient is multiplied, and stays 0 if it starts there."""
    (part,) = view.parts["losses"]
    made: Any = part.options
    if made.kl_target is not None and made.kl_coef == 0:
        yield error(
            "LOSS3",
            f"the KL coefficient is to be steered to a KL of {made.kl_target:g}, but it starts at 0 and stays there",
            view.source("loss.kl_target"),
            view.source("loss.kl_coef"),
            fix="--loss.kl-coef 0.001, or leave --loss.kl-target out",
        )


def rollout_ratio_is_left(view: PlanView) -> Iterator[Finding]:
    """A correction makes the ratio one against the policy before the step: a rollout's is 1 then, never clipped."""
    for corrected in view.parts.get("corrections", ()):
        yield error(
            "LOSS4",
            f"loss 'gspo' has nothing to clip beside correction {corrected.spec.name!r}",
            Source(
                "a correction makes the ratio one against the policy before the step: 1 for every rollout"
            ),
            fix="--loss ppo, which is the same where the ratio is 1; or leave --correction out",
        )


def advantages_have_a_use(view: PlanView) -> Iterator[Finding]:
    """The loss reads no advantages: an estimator may be there that asks for nothing, or for the teacher only."""
    for part in view.parts.get(EstimatorSpec.slot, ()):
        assert isinstance(part.spec, EstimatorSpec)
        facts = part.spec.facts(part.options)
        if CRITIC in facts.provides:
            pains = "train a critic"
        elif part.spec.needs_groups:
            pains = "compare the rollouts of a prompt"
        elif TOKEN_ADVANTAGES in facts.provides and TEACHER not in facts.needs:
            pains = "work out an advantage for each token"
        else:
            continue
        yield error(
            "LOSS5",
            "loss 'topk_reverse_kl' learns from the teacher alone: "
            f"estimator {part.spec.name!r} would {pains} for nothing",
            Source(part.spec.summary, part.owner),
            Source(TOPK_REVERSE_KL.summary),
            fix="--estimator on_policy_distill; or --loss ppo, to learn from rewards",
        )


RULES: Final = (kl_makes_sense, kl_is_steered_from_something)

PPO: Final = LossSpec(
    name="ppo",
    summary="clipped surrogate of each token's ratio, with one or two bounds",
    api=1,
    factory="molt_plugin_losses.ppo:PpoLoss",
    options=PpoOptions,
    facts=loss_facts,
    rules=RULES,
)

GSPO: Final = LossSpec(
    name="gspo",
    summary="clipped surrogate of the ratio of whole rollouts",
    api=1,
    factory="molt_plugin_losses.gspo:GspoLoss",
    options=GspoOptions,
    facts=lambda options: loss_facts(options, rollout_ratio=True),
    rules=(*RULES, rollout_ratio_is_left),
)

CISPO: Final = LossSpec(
    name="cispo",
    summary="REINFORCE with a capped ratio as constant weight; every token keeps its gradient",
    api=1,
    factory="molt_plugin_losses.cispo:CispoLoss",
    options=CispoOptions,
    facts=loss_facts,
    rules=RULES,
)

TOPK_REVERSE_KL: Final = LossSpec(
    name="topk_reverse_kl",
    summary="on-policy distillation: reverse KL to a teacher over the policy's likeliest tokens; rewards play no part",
    api=1,
    factory="molt_plugin_losses.topk_reverse_kl:TopkReverseKl",
    options=TopkReverseKlOptions,
    facts=lambda made: Facts(
        needs={SAMPLED_LOGPROBS, TOP_LOGPROBS, TEACHER},
        provides={REFERENCE_MODEL},
        refuses={CORRECTED},
        top_logprobs=made.top_k,
    ),
    rules=(advantages_have_a_use,),
)
