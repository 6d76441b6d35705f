"""Spec: what a plugin says about itself, importable in milliseconds.

An entry point of group `molt_core.<slot>` names a `Spec`. The spec's `factory` is a string,
imported only in the process that runs it. One class per slot adds what the core must know
before anything starts; the core never compares a plugin's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from attrs import frozen

from molt_core.api.facts import Facts
from molt_core.api.options import NoOptions

if TYPE_CHECKING:
    from molt_core.api.findings import Finding
    from molt_core.api.plan_view import PlanView

Rule = Callable[["PlanView"], Iterable["Finding"]]
"""Looks at the whole plan before launch and says what is wrong. Pure: no I/O, no torch."""

GROUP_PREFIX: Final = "molt_core."


def no_facts(_options: Any) -> Facts:
    return Facts()


@frozen(kw_only=True)
class Spec:
    """What every plugin declares. Use the subclass of the slot."""

    slot: ClassVar[str] = ""
    """Entry-point group without its prefix, in the plural: `estimators`."""
    flag: ClassVar[str] = ""
    """Flag and TOML table, in the singular: `estimator`."""
    api_versions: ClassVar[range] = range(1, 2)
    """API numbers of this slot that this core can drive."""

    name: str
    """Canonical name: lower case letters, digits, `+ . _ -`."""
    summary: str
    """One line for lists."""
    api: int
    """The slot's API number the author wrote against. Required: a default would let an old plugin claim to be new."""
    factory: str
    """`module:attribute`, resolved only in the process that runs it."""
    options: type[Any] = NoOptions
    aliases: tuple[str, ...] = ()
    facts: Callable[[Any], Facts] = no_facts
    """From options to facts. Pure."""
    rules: tuple[Rule, ...] = ()


@frozen(kw_only=True)
class EstimatorSpec(Spec):
    slot: ClassVar[str] = "estimators"
    flag: ClassVar[str] = "estimator"

    needs_groups: bool = False
    """Compares rollouts of one prompt, so groups of one have nothing to say."""


@frozen(kw_only=True)
class LossSpec(Spec):
    slot: ClassVar[str] = "losses"
    flag: ClassVar[str] = "loss"


@frozen(kw_only=True)
class CorrectionSpec(Spec):
    """Weights for off-policy tokens. At most one is chosen; there is none by default."""

    slot: ClassVar[str] = "corrections"
    flag: ClassVar[str] = "correction"


@frozen(kw_only=True)
class FilterSpec(Spec):
    """Which groups train. At most one is chosen; without one all do that have enough rollouts."""

    slot: ClassVar[str] = "filters"
    flag: ClassVar[str] = "filter"


@frozen(kw_only=True)
class ShaperSpec(Spec):
    """What a reward is worth. At most one is chosen; without one rewards are taken as they are."""

    slot: ClassVar[str] = "shapers"
    flag: ClassVar[str] = "shaper"


@frozen(kw_only=True)
class EnvironmentSpec(Spec):
    slot: ClassVar[str] = "envs"
    flag: ClassVar[str] = "env"

    makes_tasks: bool = False
    """Can make its own tasks, so that its name may stand for a data set (`--data arithmetic`)."""
    columns: tuple[tuple[str, ...], ...] = ()
    """For each needed column of --data the accepted names, e.g. `(("answer", "label"),)`."""
    multi_turn: bool = False
    """The factory makes a `TurnEnvironment`, a new one for every rollout."""


@frozen(kw_only=True)
class AgentSpec(Spec):
    slot: ClassVar[str] = "agents"
    flag: ClassVar[str] = "agent"

    grades: bool = False
    """Its results always carry a reward, so that no environment is needed to grade them."""


@frozen(kw_only=True)
class GatewaySpec(Spec):
    """What agents and multi-turn environments talk to. Starts only in runs that have one of them."""

    slot: ClassVar[str] = "gateways"
    flag: ClassVar[str] = "gateway"


@frozen(kw_only=True)
class EngineSpec(Spec):
    slot: ClassVar[str] = "engines"
    flag: ClassVar[str] = "engine"


@frozen(kw_only=True)
class TrainerSpec(Spec):
    slot: ClassVar[str] = "trainers"
    flag: ClassVar[str] = "trainer"


@frozen(kw_only=True)
class ExecutorSpec(Spec):
    slot: ClassVar[str] = "executors"
    flag: ClassVar[str] = "executor"


@frozen(kw_only=True)
class ModelSpec(Spec):
    """A packaged model: a name for `--model` that a pip package can make a folder of, offline."""

    slot: ClassVar[str] = "models"
    flag: ClassVar[str] = "model"

    max_length: int
    """Longest sequence in tokens."""
    requires: tuple[str, ...] = ()
    """Distributions that hold the weights, checked before launch."""


@frozen(kw_only=True)
class HookSpec(Spec):
    """Observers of a run; several may be chosen. The factory returns an object with pluggy hook methods."""

    slot: ClassVar[str] = "hooks"
    flag: ClassVar[str] = "hook"


SLOTS: Final[dict[str, type[Spec]]] = {
    kind.slot: kind
    for kind in (
        EstimatorSpec, LossSpec, CorrectionSpec, FilterSpec, ShaperSpec, EnvironmentSpec, AgentSpec, GatewaySpec,
        EngineSpec, TrainerSpec, ExecutorSpec, ModelSpec, HookSpec,
    )
}  # fmt: skip
"""Slot name to the class of its specs, in the order in which lists show them."""
