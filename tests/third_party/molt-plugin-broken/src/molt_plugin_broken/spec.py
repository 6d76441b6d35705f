"""Importing this raises: `RewardTable` was never part of the estimator API."""

from __future__ import annotations

from molt_core.api.estimator import RewardTable  # type: ignore[attr-defined]

BASELINE = RewardTable("broken-baseline")
GRPO = RewardTable("grpo")
