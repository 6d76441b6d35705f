"""Hooks: what many may watch. Mark implementations with `hookimpl`; each takes one event.

    class Printer:
        @hookimpl
        def molt_step_finished(self, event: StepFinished) -> None:
            print(event.step, event.metrics["reward/mean"])

Observers run one at a time on a thread of their own, in the order of their names, and must
not depend on one another. One that raises is reported and, after three failures in a row,
switched off; it never stops the run.

A tracker that has to go on with the same run after `molt resume` remembers its id: an observer with
`state()` and `restore(state)` (`molt_core.api.trainer.Stateful`) is asked for its state after each event
that it is told, the last one goes into the checkpoint, and a resumed process gives it back before
`molt_run_started`. Steps after that event's `step` will be told again.
"""

from __future__ import annotations

from typing import Final

import pluggy

from molt_core.api import events

PROJECT: Final = "molt_core"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class HookSpecs:
    @hookspec
    def molt_run_started(self, event: events.RunStarted) -> None:
        """Processes are up, training is about to begin."""

    @hookspec
    def molt_rollout_finished(self, event: events.RolloutFinished) -> None:
        """A rollout ended, whatever its outcome."""

    @hookspec
    def molt_step_finished(self, event: events.StepFinished) -> None:
        """An optimizer step ended, applied or skipped."""

    @hookspec
    def molt_weights_published(self, event: events.WeightsPublished) -> None:
        """All engines use a new policy version."""

    @hookspec
    def molt_checkpoint_saved(self, event: events.CheckpointSaved) -> None:
        """A checkpoint is complete on disk."""

    @hookspec
    def molt_eval_finished(self, event: events.EvalFinished) -> None:
        """An evaluation ended."""

    @hookspec
    def molt_actor_died(self, event: events.ActorDied) -> None:
        """An engine or worker is lost; the run goes on."""

    @hookspec
    def molt_actor_joined(self, event: events.ActorJoined) -> None:
        """An engine or worker has come, or come back."""

    @hookspec
    def molt_run_finished(self, event: events.RunFinished) -> None:
        """The run ended, for whatever reason; the last event."""
