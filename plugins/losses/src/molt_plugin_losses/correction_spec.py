"""Specs and options of the corrections. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from molt_core.api.facts import CENTERING_TERM, CORRECTED, SAMPLED_LOGPROBS, TOP_LOGPROBS, Facts
from molt_core.api.findings import Finding, error
from molt_core.api.options import option, options
from molt_core.api.spec import CorrectionSpec

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

CODE: Final = "LOSS2"
USUAL_BAND: Final = "--correction.threshold 0.5 --correction.threshold 5"
USUAL_DISTANCE: Final = {"binary_kl": 5e-3, "tv": 0.1}
"""Upper bounds to begin with: five nats per thousand tokens, or a tenth of the probability."""


@options
class BandOptions:
    mode: Literal["mask", "clip", "trunc"] = option(
        "mask", help="what happens outside the threshold: left out, clipped to it, or cut from above"
    )
    threshold: tuple[float, ...] = option(
        (0.5, 5.0), help="one number: an upper bound; two (give the flag twice): lower and upper bound"
    )

    @property
    def band(self) -> tuple[float, float]:
        """Lower and upper bound."""
        return (
            (-math.inf, self.threshold[0])
            if len(self.threshold) == 1
            else (self.threshold[0], self.threshold[1])
        )

    def __attrs_post_init__(self) -> None:
        if len(self.threshold) not in (1, 2) or not all(map(math.isfinite, self.threshold)):
            raise ValueError(f"threshold must be one or two finite numbers, e.g. {USUAL_BAND}")
        low, high = self.band
        if not low < high:
            raise ValueError(f"threshold must rise, got {low:g} and then {high:g}; e.g. {USUAL_BAND}")


@options
class ImportanceOptions(BandOptions):
    level: Literal["token", "seq", "geo"] = option(
        "token", help="what is judged: a token, a rollout's product of ratios, or their geometric mean"
    )
    gate: Literal["ratio", "binary_kl", "tv"] = option(
        "ratio", help="by what it is judged: the ratio, or a divergence of the sampled token's probability"
    )


@options
class ScoreCenteringOptions(BandOptions):
    level: Literal["off", "token"] = option(
        "off", help="token: also weigh each token by its ratio, within mode and threshold"
    )
    top_k: int = option(20, help="likeliest tokens over which the score is centred", ge=1)


def combination_has_a_meaning(view: PlanView) -> Iterator[Finding]:
    """Which of level, gate, mode and threshold go together; docs/compatibility.md is made from this."""
    for part in view.parts["corrections"]:
        if isinstance(part.options, ImportanceOptions):
            for problem, fix in refusals(part.options):
                sources = [
                    view.source(f"correction.{name}") for name in ("level", "gate", "mode", "threshold")
                ]
                yield error(CODE, problem, *sources, fix=fix)


def refusals(made: ImportanceOptions) -> Iterator[tuple[str, str]]:
    """(what is wrong, way out)."""
    if made.mode != "mask" and (made.level, made.gate) != ("token", "ratio"):
        yield (
            f"mode {made.mode} bounds a token's own ratio; level {made.level} with gate {made.gate} only decides "
            "what is left out",
            "--correction.mode mask, or --correction.level token --correction.gate ratio",
        )
    if made.gate != "ratio" and made.level == "geo":
        yield (
            f"the geometric mean is one of ratios; gate {made.gate} has none",
            "--correction.level seq, or --correction.gate ratio",
        )
    low, high = made.band
    if made.gate == "ratio" and high <= 0:
        yield (
            f"ratios are positive; an upper bound of {high:g} leaves out everything",
            USUAL_BAND,
        )
    if made.gate != "ratio" and low > 0:
        yield (
            f"gate {made.gate} measures a distance, and a lower bound of {low:g} would leave out the tokens that agree",
            f"one upper bound, e.g. --correction.threshold {USUAL_DISTANCE[made.gate]:g}",
        )
    elif made.gate == "tv" and high >= 1:
        yield (
            f"the total variation is below 1; an upper bound of {high:g} leaves out nothing",
            f"--correction.threshold {USUAL_DISTANCE['tv']:g}",
        )


def centering_options_act(view: PlanView) -> Iterator[Finding]:
    """Without weights there is nothing that mode and threshold could say; with them, something must be kept."""
    (part,) = view.parts["corrections"]
    made: Any = part.options
    unused = [name for name in ("correction.mode", "correction.threshold") if name in view.origins]
    if made.level == "off" and unused:
        because = map(view.source, ["correction.level", *unused])
        message = "level off weighs no token, so that mode and threshold have nothing to act on"
        yield error(CODE, message, *because, fix="--correction.level token, or leave them out")
    if made.level == "token" and made.band[1] <= 0:
        message = f"ratios are positive; an upper bound of {made.band[1]:g} leaves out everything"
        yield error(CODE, message, view.source("correction.threshold"), fix=USUAL_BAND)


IMPORTANCE: Final = CorrectionSpec(
    name="importance",
    summary="importance weights by token or rollout; masked, clipped or truncated outside a threshold",
    api=1,
    factory="molt_plugin_losses.importance:ImportanceCorrection",
    options=ImportanceOptions,
    facts=lambda _options: Facts(needs={SAMPLED_LOGPROBS}, provides={CORRECTED}),
    rules=(combination_has_a_meaning,),
)

SCORE_CENTERING: Final = CorrectionSpec(
    name="score-centering",
    summary="takes the expected score of the likeliest tokens off the gradient, with or without weights by token",
    api=1,
    factory="molt_plugin_losses.score_centering:ScoreCentering",
    options=ScoreCenteringOptions,
    facts=lambda made: Facts(
        needs={SAMPLED_LOGPROBS, TOP_LOGPROBS, CENTERING_TERM}, provides={CORRECTED}, top_logprobs=made.top_k
    ),
    rules=(centering_options_act,),
)
