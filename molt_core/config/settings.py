"""Settings: single statements of the user, `key = value` with where it was said.

Flags and TOML files both become settings; everything behind this point sees no other form.
Keys are dotted: `group_size`, `estimator` (which plugin), `estimator.kl_coef` (a knob of it),
`hook.tensorboard.every`. Knobs are written with `_`, plugin names with `-`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from attrs import frozen

from molt_core.api.spec import SLOTS, HookSpec, Spec
from molt_core.plugins.names import normalized

HOOK_FLAG: Final = HookSpec.flag
SLOT_OF_FLAG: Final = {spec.flag: slot for slot, spec in SLOTS.items()}
"""`estimator` -> `estimators`."""
DEFAULT: Final = "default"
"""Origin of what nobody has said, and the comment on it in a saved configuration."""
SWITCHES: Final = ("help", "print_config", "dry_run")
"""Flags that change what the command does instead of what the run is."""


@frozen
class Setting:
    """One statement of the user."""

    key: str
    values: tuple[Any, ...]
    """Flags: every text given, in order; True for a bare `--flag`, False for `--no-flag`. TOML: one value."""
    origin: str
    """The flag, or `file:line`."""
    from_flag: bool
    layer: int
    """Files count from 0 in the order given; the command line is the last layer."""
    is_default: bool = False
    """A saved configuration, which states everything, says that nobody asked for this."""

    @property
    def value(self) -> Any:
        return self.values[-1]

    @property
    def owner(self) -> str:
        """Whose knob it is: empty for the core and for choices, `estimator`, `hook.tensorboard`."""
        return self.key.rpartition(".")[0]

    @property
    def knob(self) -> str:
        return self.key.rpartition(".")[2]

    def __str__(self) -> str:
        """How messages quote it: `--lr -1`, or `run.toml:3: lr = -1`."""
        if not self.from_flag:
            if self.key == HOOK_FLAG:  # the one choice that is a list, and may be empty
                return f"{self.origin}: hooks = {list(self.values)!r}"
            return f"{self.origin}: {self.key} = {self.value!r}"
        return self.origin if isinstance(self.value, bool) else f"{self.origin} {self.value}"


def normal_key(name: str) -> str:
    """Key of a flag's name without its dashes: `estimator.kl-coef` -> `estimator.kl_coef`."""
    owner, dot, knob = name.rpartition(".")
    return owner.lower().replace("_", "-") + dot + knob.replace("-", "_")


def flag_of(key: str) -> str:
    """The inverse: `estimator.kl_coef` -> `--estimator.kl-coef`."""
    owner, dot, knob = key.rpartition(".")
    return f"--{owner}{dot}{knob.replace('_', '-')}"


def owner_of_knobs(spec: Spec) -> str:
    """Prefix of a plugin's keys: `estimator`; of a hook, of which several may run, `hook.tensorboard`."""
    return f"{HOOK_FLAG}.{normalized(spec.name)}" if spec.flag == HOOK_FLAG else spec.flag


def strongest(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Last setting of each key: later files win over earlier ones, flags over files."""
    return {setting.key: setting for setting in sorted(settings, key=lambda setting: setting.layer)}
