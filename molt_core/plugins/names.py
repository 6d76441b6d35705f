"""Names of plugins: how they are compared, and who owns the bare ones.

Pure. A bare name means the first-party plugin that this table lists, whatever else is
installed, so that installing a stranger's package never changes what a run does. The table is
static because it must also answer for packages that are not installed. It knows nothing of
what is installed: `molt_core.plugins.resolve` puts both together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import frozen

CORE: Final = "molt-core"


@frozen
class FirstParty:
    """A plugin of this project: who ships it, and what else it answers to."""

    slot: str
    name: str
    """As in its spec."""
    dist: str
    aliases: tuple[str, ...] = ()


FIRST_PARTY: Final = (
    FirstParty("estimators", "reinforce++", "molt-plugin-estimators", ("reinforce", "reinforce-pp")),
    FirstParty("estimators", "reinforce++-baseline", "molt-plugin-estimators", ("reinforce_baseline",)),
    FirstParty("estimators", "grpo", "molt-plugin-estimators"),
    FirstParty("estimators", "dr_grpo", "molt-plugin-estimators"),
    FirstParty("estimators", "rloo", "molt-plugin-estimators"),
    FirstParty("estimators", "flash_reinforce", "molt-plugin-estimators"),
    FirstParty("estimators", "gae", "molt-plugin-estimators"),
    FirstParty("estimators", "on_policy_distill", "molt-plugin-estimators"),
    FirstParty("losses", "ppo", "molt-plugin-losses"),
    FirstParty("losses", "gspo", "molt-plugin-losses"),
    FirstParty("losses", "cispo", "molt-plugin-losses"),
    FirstParty("losses", "topk_reverse_kl", "molt-plugin-losses"),
    FirstParty("corrections", "importance", "molt-plugin-losses"),
    FirstParty("corrections", "score-centering", "molt-plugin-losses"),
    FirstParty("filters", "dynamic", "molt-plugin-shaping"),
    FirstParty("filters", "varied", "molt-plugin-shaping"),
    FirstParty("shapers", "penalties", "molt-plugin-shaping"),
    FirstParty("envs", "arithmetic", "molt-plugin-envs"),
    FirstParty("envs", "verify", "molt-plugin-envs"),
    FirstParty("envs", "python-tool", "molt-plugin-envs"),
    FirstParty("envs", "reasoning-gym", "molt-plugin-reasoning-gym"),
    FirstParty("envs", "gymnasium", "molt-plugin-gymnasium"),
    FirstParty("envs", "verifiers", "molt-plugin-verifiers"),
    FirstParty("agents", "command", "molt-plugin-agents"),
    FirstParty("agents", "verifiers", "molt-plugin-verifiers"),
    FirstParty("gateways", "http", "molt-plugin-gateway"),
    FirstParty("engines", "vllm", "molt-plugin-vllm"),
    FirstParty("engines", "transformers", "molt-plugin-transformers", ("hf",)),
    FirstParty("trainers", "fsdp", "molt-plugin-fsdp"),
    FirstParty("executors", "local", CORE),
    FirstParty("executors", "ray", CORE),
    FirstParty("models", "smollm2-135m-instruct", "molt-plugin-models", ("smollm2",)),
    FirstParty("models", "tiny", "molt-plugin-models"),
    FirstParty("hooks", "tensorboard", "molt-plugin-tracking"),
)

FIRST_PARTY_DISTRIBUTIONS: Final = frozenset(
    {owner.dist for owner in FIRST_PARTY} | {"molt-plugins-moe", "molt-plugins-vlm"}
)
"""A name that the table does not list yet, but one of these offers, still beats a stranger's."""

_VALID: Final = re.compile(r"[a-z0-9][a-z0-9+._-]*")


def normalized(name: str) -> str:
    """The form in which plugin names are compared: lower case, `_` as `-`."""
    return name.strip().lower().replace("_", "-")


def is_valid(name: str) -> bool:
    """Whether `name` is a canonical plugin name: lower case letters, digits, `+ . _ -`."""
    return _VALID.fullmatch(name) is not None


def normalized_dist(name: str) -> str:
    """The form in which distribution names are compared (PyPA name normalisation)."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def owner_of(slot: str, wanted: str) -> FirstParty | None:
    """Who owns the bare name or alias `wanted` in `slot`; None if it is free."""
    return _OWNERS.get((slot, normalized(wanted)))


def nearest(wanted: str, known: Iterable[str]) -> str | None:
    """The known name that `wanted` was most likely meant to be, if one is near enough."""
    import difflib

    by_form = {normalized(name): name for name in known}
    close = difflib.get_close_matches(normalized(wanted), by_form, n=1, cutoff=0.6)
    return by_form[close[0]] if close else None


_OWNERS: Final = {
    (owner.slot, normalized(spelling)): owner
    for owner in FIRST_PARTY
    for spelling in (owner.name, *owner.aliases)
}
