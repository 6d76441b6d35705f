"""Specs and options of filters and shapers. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from molt_core.api.facts import GROUPED_SAMPLES, TEACHER, Facts
from molt_core.api.findings import Finding, Source, error
from molt_core.api.options import NoOptions, option, options
from molt_core.api.spec import FilterSpec, ShaperSpec

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView


@options
class DynamicOptions:
    low: float = option(0.0, help="a prompt whose mean reward is at or below this is too hard")
    high: float = option(1.0, help="a prompt whose mean reward is at or above this is too easy")

    def __attrs_post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(
                f"low must be below high, got {self.low:g} and {self.high:g}; e.g. --filter.low 0 --filter.high 1"
            )


@options
class PenaltyOptions:
    overlong_buffer: int = option(
        0, help="tokens before the length limit in which replies cost; 0: none", ge=0
    )
    overlong_factor: float = option(1.0, help="cost of a reply that reaches the limit", gt=0)
    overlong_of: Literal["reply", "context"] = option(
        "reply", help="which length counts: the reply's, or the longest context's"
    )
    stop_coef: float | None = option(
        None, help="rewards of truncated rollouts are multiplied by this; below 0: they become this"
    )
    clip: tuple[float, ...] = option((), help="lower and upper bound of the shaped reward")

    def __attrs_post_init__(self) -> None:
        if self.overlong_buffer and self.stop_coef is not None:
            raise ValueError(
                "both --shaper.overlong-buffer and --shaper.stop-coef punish long replies; leave one of them out"
            )
        if self.clip and not (len(self.clip) == 2 and self.clip[0] < self.clip[1]):
            raise ValueError(
                f"clip must be two rising numbers, got {self.clip}; e.g. --shaper.clip -10 --shaper.clip 10"
            )


def rewards_are_learned_from(view: PlanView) -> Iterator[Finding]:
    """Where a teacher says what a token is worth, shaped rewards train nothing."""
    for part in (*view.parts.get("estimators", ()), *view.parts.get("losses", ())):
        if TEACHER in part.spec.facts(part.options).needs:
            who = f"{part.spec.flag} {part.spec.name!r}"
            message = f"shaper 'penalties' changes rewards, and {who} learns from the teacher, not from them"
            because = Source(part.spec.summary, part.owner)
            yield error("SHAPE1", message, because, fix="leave --shaper out; a filter still chooses prompts")
            return


DYNAMIC: Final = FilterSpec(
    name="dynamic",
    summary="drops prompts that are solved always or never, by their mean reward",
    api=1,
    factory="molt_plugin_shaping.filters:Dynamic",
    options=DynamicOptions,
    facts=lambda _options: Facts(needs=[GROUPED_SAMPLES]),
)

VARIED: Final = FilterSpec(
    name="varied",
    summary="drops prompts whose rollouts all have one reward",
    api=1,
    factory="molt_plugin_shaping.filters:Varied",
    options=NoOptions,
    facts=lambda _options: Facts(needs=[GROUPED_SAMPLES]),
)

PENALTIES: Final = ShaperSpec(
    name="penalties",
    summary="overlong and truncation penalties, then bounds",
    api=1,
    factory="molt_plugin_shaping.penalties:Penalties",
    options=PenaltyOptions,
    rules=(rewards_are_learned_from,),
)
