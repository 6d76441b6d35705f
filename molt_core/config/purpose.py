"""What a configuration is for: the slots and core options that a command has no use for.

One file serves training and evaluation. What stands in it for the other is left out, with a
note, before any plugin is chosen, so that it may be neither installed nor sound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
from attrs import frozen

from molt_core.api.findings import Finding, Level
from molt_core.api.spec import SLOTS
from molt_core.config.settings import Setting

OWN_TASKS: Final = 100
"""Tasks of `molt eval` where an environment makes them, perhaps without end, and nobody says how many."""


@frozen(kw_only=True)
class Purpose:
    command: str
    unused_slots: frozenset[str] = frozenset()
    unused_keys: frozenset[str] = frozenset()
    """Core options."""

    def uses(self, setting: Setting) -> bool:
        flag = setting.key.partition(".")[0]
        # a file names the folder of the training run, which must not be written to again
        is_other_run = self is EVAL and setting.key == "run_name" and not setting.from_flag
        return not (flag in self._unused_flags or setting.key in self.unused_keys or is_other_run)

    @property
    def _unused_flags(self) -> frozenset[str]:
        return frozenset(SLOTS[slot].flag for slot in self.unused_slots)


TRAIN: Final = Purpose(command="molt run")
EVAL: Final = Purpose(
    command="molt eval",
    unused_slots=frozenset(
        {"estimators", "losses", "corrections", "filters", "shapers", "trainers", "hooks"}
    ),
    unused_keys=frozenset(
        {
            "eval_every", "group_size", "incomplete_groups", "keep_best", "keep_checkpoints", "keep_hours", "lr",
            "max_staleness", "partial", "prompts_per_step", "record", "reference", "save_every", "steps",
            "stop_at_reward", "temperature", "trainer_ranks",
        }
    ),
)  # fmt: skip


def drop_unused(
    settings: Sequence[Setting], purpose: Purpose
) -> tuple[tuple[Setting, ...], tuple[Finding, ...]]:
    """Split off what the command has no use for; a note names it, a warning if it was a flag."""
    kept = tuple(setting for setting in settings if purpose.uses(setting))
    unused = [setting for setting in settings if not purpose.uses(setting)]
    if not unused:
        return kept, ()
    names = ", ".join(dict.fromkeys(setting.key.partition(".")[0] for setting in unused))
    level: Level = "warning" if any(setting.from_flag for setting in unused) else "note"
    fix = "evaluation has --eval-temperature, --eval-samples, --eval-prompts and --eval-concurrency"
    return kept, (Finding(level, "M131", f"not used by {purpose.command}: {names}", fix=fix),)


def as_evaluated(settings: Mapping[str, Setting], *, own_tasks: bool) -> dict[str, Setting]:
    """`data` becomes what is evaluated: --eval-data where it is given, else --data; all of it unless said otherwise.

    Args:
        own_tasks: --eval-data names the environment.
    """
    evaluated = settings.get("eval_data") or (None if own_tasks else settings.get("data"))
    kept = {key: setting for key, setting in settings.items() if key not in ("data", "eval_data")}
    if evaluated:
        kept["data"] = attrs.evolve(evaluated, key="data")
    num_prompts = 0 if evaluated else OWN_TASKS
    default = Setting("eval_prompts", (num_prompts,), "default", from_flag=False, layer=0)
    return {"eval_prompts": default, **kept}
