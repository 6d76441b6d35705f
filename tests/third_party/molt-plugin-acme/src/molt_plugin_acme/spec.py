"""What this package offers. Light: imported when one of its plugins is chosen, before anything starts."""

from __future__ import annotations

from molt_core.api.options import option, options
from molt_core.api.spec import EnvironmentSpec, EstimatorSpec


@options
class RankOptions:
    scale: float = option(1.0, help="advantage of a prompt's best rollout; the worst gets its negative", gt=0)


@options
class ParityOptions:
    largest: int = option(99, help="numbers are drawn from 0 to this", ge=9)


RANK = EstimatorSpec(
    name="acme-rank",
    summary="centred rank of the reward within its prompt",
    api=1,
    factory="molt_plugin_acme.rank:Rank",
    options=RankOptions,
    needs_groups=True,
)

PARITY = EnvironmentSpec(
    name="acme-parity",
    summary="is a number even? answer yes or no",
    api=1,
    factory="molt_plugin_acme.parity:Parity",
    options=ParityOptions,
    makes_tasks=True,
)
