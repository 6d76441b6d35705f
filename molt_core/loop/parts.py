"""What `launch` builds and hands to the loop: ports, plugins, tasks, and where an earlier process was."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from molt_core.api.estimator import Estimator
from molt_core.api.events import Event
from molt_core.api.shaping import Filter, Shaper
from molt_core.api.trainer import Stateful
from molt_core.data.tasks import Task, TaskSource
from molt_core.loop.ports import Policy, Sampler
from molt_core.loop.state import LoopState
from molt_core.loop.stop import StopSignal
from molt_core.report.ledger import Ledger


@frozen(kw_only=True)
class Resumed:
    """Where an earlier process was; the trainer and the task source have been brought there."""

    state: LoopState
    tasks: tuple[Task, ...]
    """Of the groups in flight or ready, in the state's order."""


@frozen(kw_only=True)
class LoopParts:
    """What `launch` builds and hands to the loop."""

    sampler: Sampler
    policy: Policy
    estimator: Estimator
    needs_groups: bool
    tasks: TaskSource
    eval_tasks: tuple[Task, ...]
    eval_name: str
    max_tokens: int
    top_logprobs: int = 0
    group_filter: Filter | None = None
    shaper: Shaper | None = None
    ledger: Ledger
    notify: Callable[[Event], None]
    hooks: Stateful | None = None
    """Those of whom `notify` tells."""
    stop: StopSignal
    resumed: Resumed | None = None
