"""All estimators of the package by name, as their entry points make them."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from molt_plugin_estimators import spec

ESTIMATORS: Final = {
    one.name: one
    for one in (
        spec.REINFORCE_PP, spec.REINFORCE_PP_BASELINE, spec.GRPO, spec.DR_GRPO, spec.RLOO, spec.FLASH_REINFORCE,
        spec.GAE, spec.ON_POLICY_DISTILL,
    )
}  # fmt: skip


def make(name: str, **options: Any) -> Any:
    module, _, attribute = ESTIMATORS[name].factory.partition(":")
    return getattr(import_module(module), attribute)(ESTIMATORS[name].options(**options))
