"""How far a run is: the counts that the learner keeps, that end it, and that a checkpoint holds. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from attrs import Factory, define

from molt_core.api.events import EvalFinished
from molt_core.api.run_options import RunOptions
from molt_core.errors import RunError
from molt_core.loop.state import LoopState

MAX_SKIPPED_IN_A_ROW: Final = 3
"""Non-finite steps after which the run ends: the weights are sound, but nothing is learned any more."""
REWARD_PATIENCE: Final = 3
"""Steps over which the mean reward has to stay at `stop_at_reward`."""


@define
class Progress:
    run: RunOptions
    step: int = 0
    """Steps that were done, skipped ones included."""
    weights_version: int = 0
    """Of the trainer; engines may be one behind."""
    skipped_in_a_row: int = 0
    good_steps_in_a_row: int = 0
    evaluated_step: int | None = None
    scores: dict[str, float] = Factory(dict)
    """What says which checkpoint is best, by evaluated version."""

    @classmethod
    def of(cls, run: RunOptions, state: LoopState) -> Progress:
        return cls(
            run, state.step, state.version, state.skipped_in_a_row, state.good_steps_in_a_row, state.evaluated_step,
            dict(state.scores) if state.scored_by == run.keep_best else {},
        )  # fmt: skip

    def for_state(self) -> dict[str, Any]:
        """Fields of `LoopState`."""
        return {
            "step": self.step, "version": self.weights_version, "skipped_in_a_row": self.skipped_in_a_row,
            "good_steps_in_a_row": self.good_steps_in_a_row, "evaluated_step": self.evaluated_step,
            "scored_by": self.run.keep_best, "scores": dict(self.scores),
        }  # fmt: skip

    def end_step(self, *, applied: bool, reward: float) -> None:
        """Args: reward: mean of the step."""
        self.step += 1
        self.weights_version += applied
        self.skipped_in_a_row = 0 if applied else self.skipped_in_a_row + 1
        is_good = self.run.stop_at_reward is not None and reward >= self.run.stop_at_reward
        self.good_steps_in_a_row = self.good_steps_in_a_row + 1 if is_good else 0

    @property
    def is_at_goal(self) -> bool:
        """The reward has stayed where it should be."""
        return self.good_steps_in_a_row >= REWARD_PATIENCE

    def is_due(self, every: int) -> bool:
        """Whether what happens every so many steps, and at the end anyway, happens now."""
        return every > 0 and self.step % every == 0 and self.step < self.run.steps

    def check_learning(self, metrics: Mapping[str, float]) -> None:
        """Args: metrics: of the step.

        Raises:
            RunError: nothing is learned any more.
        """
        if self.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise RunError(
                f"{self.skipped_in_a_row} steps in a row had a loss or gradient that is not finite "
                f"(last: {dict(metrics)}); weights are those of version {self.weights_version}. "
                "Try a lower --lr, or --dtype float32",
                reason="non_finite_step",
            )

    def evaluated(self, event: EvalFinished) -> None:
        """Raises RunError when evaluation does not have the metric that says what is best."""
        self.evaluated_step = event.step
        if (best := self.run.keep_best) is None:
            return
        if best not in event.metrics:
            told = ", ".join(sorted(event.metrics))
            raise RunError(f"keep_best is {best!r}, but evaluation has {told}", reason="keep_best")
        if math.isfinite(event.metrics[best]):
            self.scores[str(event.version)] = event.metrics[best]
