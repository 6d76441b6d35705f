"""What differs between the plan that a run began with and the one it is to go on with. Pure.

A change that leaves the meaning of the run as it is (how long, how many processes, what is kept)
is told; any other would make the rest of the run another experiment, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import frozen

from molt_core.api.findings import Finding, Source, error
from molt_core.api.spec import SLOTS
from molt_core.config.settings import flag_of
from molt_core.plan.plan import Plan

FREE_OPTIONS: Final = frozenset({
    "steps", "stop_at_reward", "save_every", "keep_checkpoints", "keep_hours", "keep_best", "record", "eval_every",
    "eval_prompts", "eval_samples", "eval_concurrency", "rollout_timeout_s", "env_timeout_s", "engines",
    "min_engines", "max_restarts", "trainer_ranks", "workers", "threads", "ray_address",
})  # fmt: skip
FREE_SLOTS: Final = frozenset({"engines", "gateways", "executors", "hooks"})
"""Engines sample from one distribution, whichever they are; the others are no part of what is learned."""
BITS: Final = frozenset({"engines", "trainer_ranks", "threads"})
"""Options that change the order of sums: not free where equality to the bit was asked for."""


@frozen
class Change:
    key: str
    """`steps`, `estimator`, `engine.max-num-seqs`, as in the configuration."""
    before: Any
    now: Any
    is_free: bool

    def __str__(self) -> str:
        return f"{self.key} {self.before!r} -> {self.now!r}"


def changes(before: Plan, now: Plan) -> tuple[Change, ...]:
    """Every option and plugin that differs; versions of packages are told like plugins."""
    bits = BITS if before.run.get("deterministic") else frozenset()
    found = [
        Change(key, old, new, key in FREE_OPTIONS - bits) for key, old, new in _different(before.run, now.run)
    ]
    for slot, kind in SLOTS.items():
        found += _of_slot(slot, kind.flag, before, now)
    return tuple(found)


def refused(found: tuple[Change, ...], origins: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding for each change that is not free."""
    return tuple(
        error(
            "M602",
            f"{change.key} was {change.before!r} when the run began and is {change.now!r} now",
            Source("the rest would be another experiment", origins.get(change.key, "")),
            fix=f"leave {flag_of(change.key)} out; or a new run: molt run RUN/config.toml --model RUN --run-name NAME",
        )
        for change in found
        if not change.is_free
    )


def _of_slot(slot: str, flag: str, before: Plan, now: Plan) -> Iterator[Change]:
    is_free = slot in FREE_SLOTS
    old = {part.name: part for part in before.parts.get(slot, ())}
    new = {part.name: part for part in now.parts.get(slot, ())}
    if list(old) != list(new):
        yield Change(flag, ", ".join(old) or None, ", ".join(new) or None, is_free)
    for name in old.keys() & new.keys():
        one, other = old[name], new[name]
        owner = f"{flag}.{name}" if slot == "hooks" else flag
        for key, was, is_now in _different(one.options, other.options):
            yield Change(f"{owner}.{key}", was, is_now, is_free)
        if (one.dist, one.factory) != (other.dist, other.factory):
            yield Change(owner, f"{one.dist} {one.factory}", f"{other.dist} {other.factory}", is_free)
        elif one.version != other.version:
            # a new release is the user's decision; that it may compute something else is worth a line
            yield Change(f"{owner} ({one.dist})", one.version, other.version, True)


def _different(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    # an option that only one version of the package knows has no other side
    for key in before.keys() & now.keys():
        if before[key] != now[key]:
            yield key, before[key], now[key]
