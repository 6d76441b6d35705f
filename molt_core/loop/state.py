"""What the loop is at one instant, as JSON: enough for another process to go on exactly there.

A checkpoint holds it beside weights and optimizer. Finished groups that wait in the buffer are in it
with the names of their rollouts, whose tokens lie in files beside it; of groups in flight it holds
the tasks, to be sampled again under the same index and seeds. Pure: no files, no clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
from attrs import frozen
from cattrs import Converter
from cattrs.errors import BaseValidationError

from molt_core.api.findings import error
from molt_core.errors import ConfigError
from molt_core.experience import Group, RolloutSummary
from molt_core.loop.buffer import BufferContents, Ticket

SCHEMA: Final = 2
_CONVERTER: Final = Converter(forbid_extra_keys=True)


@frozen(kw_only=True)
class LoopState:
    step: int
    """Optimizer steps done, skipped ones included."""
    version: int
    """Of the trainer's weights; what engines have to load before anything is sampled."""
    outcome: str
    """`running`, or how the loop ended after this step, as in `RunFinished`."""
    evaluated_step: int | None
    """Step after which the last evaluation was made."""
    evaluation_due: bool
    """One was asked for that goes on beside training, and has not ended."""
    scored_by: str | None
    """Metric that says which checkpoint is best, if one does."""
    scores: Mapping[str, float]
    """Its values, by evaluated version; only finite ones."""
    skipped_in_a_row: int
    good_steps_in_a_row: int
    num_filtered: int
    num_lost_groups: int
    tasks: Mapping[str, Any]
    """Cursor of the task source."""
    ledger: Mapping[str, Any]
    buffer: BufferContents
    tasks_open: tuple[tuple[str, int], ...]
    """Task id and epoch of each group that is in flight or ready, in order of their indices."""
    parts: Mapping[str, Any]
    """State of estimator, filter, shaper and hooks, where they have one."""
    clock_s: float
    """The loop's clock at this instant."""

    @property
    def payloads(self) -> dict[str, Any]:
        """Payload of each rollout that waits to be trained, by rollout id."""
        return {
            rollout.rollout_id: rollout.payload
            for _, group in self.buffer.ready
            for rollout in group.trainable
        }

    def to_json(self) -> dict[str, Any]:
        """JSON values; a payload becomes its rollout's id."""
        named = self._with_payloads(lambda rollout: rollout.rollout_id if rollout.trains else None)
        table: dict[str, Any] = _CONVERTER.unstructure(named)
        return {"schema": SCHEMA, **table}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> LoopState:
        """The inverse, with rollout ids as payloads.

        Raises:
            ConfigError: another version of molt-core wrote it, or something else.
        """
        fields = dict(table)
        if (schema := fields.pop("schema", None)) != SCHEMA:
            message = f"the checkpoint's loop state has schema {schema!r}, this molt-core reads {SCHEMA}"
            raise ConfigError([error("M525", message, fix="use the version of molt-core that wrote it")])
        try:
            return _CONVERTER.structure(fields, cls)
        except BaseValidationError as problem:
            raise ConfigError([error("M525", f"this is no state of a loop: {problem!r}")]) from problem

    def resumed(self, payloads: Mapping[str, Any], now_s: float) -> LoopState:
        """As `from_json` gave it, with payloads that can be fetched, on a clock that shows `now_s`."""
        filled = self._with_payloads(
            lambda rollout: None if rollout.payload is None else payloads[rollout.payload]
        )
        shift = now_s - self.clock_s

        def moved(ticket: Ticket) -> Ticket:
            return attrs.evolve(ticket, started_s=ticket.started_s + shift)

        contents = filled.buffer
        ready = tuple(
            (
                moved(ticket),
                attrs.evolve(group, started_s=group.started_s + shift, finished_s=group.finished_s + shift),
            )
            for ticket, group in contents.ready
        )
        in_flight = tuple(map(moved, contents.in_flight))
        return attrs.evolve(
            filled, buffer=attrs.evolve(contents, ready=ready, in_flight=in_flight), clock_s=now_s
        )

    def _with_payloads(self, payload: Callable[[RolloutSummary], Any]) -> LoopState:
        def changed(group: Group) -> Group:
            rollouts = tuple(attrs.evolve(each, payload=payload(each)) for each in group.rollouts)
            return attrs.evolve(group, rollouts=rollouts)

        ready = tuple((ticket, changed(group)) for ticket, group in self.buffer.ready)
        return attrs.evolve(self, buffer=attrs.evolve(self.buffer, ready=ready))
