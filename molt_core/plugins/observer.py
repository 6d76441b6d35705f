"""One observer of a run: checked when it is registered, isolated when it is called.

No threads and no queue: `molt_core.plugins.hooks` has those.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

import pluggy
from attrs import define, field

from molt_core.api.events import Event
from molt_core.api.findings import error
from molt_core.api.hookspecs import PROJECT, HookSpecs
from molt_core.api.trainer import Stateful
from molt_core.errors import ConfigError
from molt_core.plugins.names import nearest

MAX_FAILURES_IN_A_ROW: Final = 3

log = logging.getLogger(__name__)

HOOK_NAMES: Final = tuple(name for name in vars(HookSpecs) if name.startswith("molt_"))
HOOK_OF: Final = {kind: "molt" + re.sub(r"(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Event)}
"""`StepFinished` is told through `molt_step_finished`, and so on."""


@define
class Observer:
    """A registered observer and how it has fared."""

    owner: str
    """Name and distribution, for messages."""
    manager: pluggy.PluginManager
    """Holds this observer alone."""
    num_failures: int = 0
    failures_in_a_row: int = 0
    last_failure: str = ""
    busy_with: str = ""
    """Hook that is running now."""
    seconds: float = 0.0
    """Time spent in this observer, all hooks together."""
    state: Mapping[str, Any] | None = None
    """What it remembered after the last event; None if it remembers nothing. JSON values."""
    _logged: set[str] = field(factory=set, init=False)

    @property
    def switched_off(self) -> bool:
        return self.failures_in_a_row >= MAX_FAILURES_IN_A_ROW

    @property
    def watches(self) -> frozenset[str]:
        """Names of the hooks it implements."""
        return frozenset(name for name in HOOK_NAMES if getattr(self.manager.hook, name).get_hookimpls())

    def tell(self, event: Event) -> None:
        """Call the observer's implementation of the event's hook, if it has one and is not switched off."""
        hook = HOOK_OF[type(event)]
        if self.switched_off or hook not in self.watches:
            return

        def call() -> None:
            getattr(self.manager.hook, hook)(event=event)
            if (memory := self._memory) is not None:
                # a copy that can be saved: the observer goes on while a checkpoint is written
                self.state = json.loads(json.dumps(memory.state(), allow_nan=False))

        self._isolated(hook, call)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Give back what `state` was in an earlier process; before the first event."""
        if (memory := self._memory) is not None:
            self.state = state
            self._isolated("restore", lambda: memory.restore(state))

    @property
    def _memory(self) -> Stateful | None:
        plugin = self.manager.get_plugin(self.owner)
        return plugin if isinstance(plugin, Stateful) else None

    def _isolated(self, what: str, call: Callable[[], None]) -> None:
        self.busy_with, started = what, time.monotonic()
        try:
            call()
            self.failures_in_a_row = 0
        # isolation point: an observer may raise anything, sys.exit included, and the thread must go on.
        # KeyboardInterrupt can't arrive here: Python delivers it to the main thread only.
        except BaseException as failure:  # noqa: BLE001
            self._failed(what, failure)
        self.busy_with, self.seconds = "", self.seconds + time.monotonic() - started

    def _failed(self, hook: str, failure: BaseException) -> None:
        self.num_failures += 1
        self.failures_in_a_row += 1
        self.last_failure = f"{hook} raised {type(failure).__name__}: {failure}"
        if hook not in self._logged:
            self._logged.add(hook)
            log.warning("hook %s failed in %s; the run goes on", self.owner, hook, exc_info=failure)

    def describe_failures(self) -> str:
        ending = f", switched off after {MAX_FAILURES_IN_A_ROW} in a row" if self.switched_off else ""
        return f"hook {self.owner} failed {self.num_failures} times{ending}; last: {self.last_failure}"


def registered(owner: str, plugin: object) -> Observer:
    """Check `plugin` and register it in a manager of its own, so that a failure leaves nothing behind.

    Raises:
        ConfigError: a misspelt or unmarked hook, a wrong signature, a coroutine, or no hook at all.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    try:
        manager.register(plugin, name=owner)
    except pluggy.PluginValidationError as failure:
        raise _refused(
            owner, str(failure).splitlines()[-1].strip(), "take one argument: `event`"
        ) from failure
    callers = manager.get_hookcallers(plugin) or []
    for caller in callers:
        if not caller.has_spec() and not all(impl.optionalhook for impl in caller.get_hookimpls()):
            meant = nearest(caller.name, HOOK_NAMES)
            fix = f"rename it to {meant}" if meant else f"use one of {', '.join(HOOK_NAMES)}"
            raise _refused(owner, f"there is no hook {caller.name!r}", fix)
        if any(inspect.iscoroutinefunction(impl.function) for impl in caller.get_hookimpls()):
            raise _refused(
                owner,
                f"{caller.name} is a coroutine",
                "write it as a plain function: hooks have their own thread",
            )
    marked = {caller.name for caller in callers}
    for name in HOOK_NAMES:
        if hasattr(plugin, name) and name not in marked:
            raise _refused(owner, f"{name} is not marked", "put @hookimpl on it")
    if not marked:
        raise _refused(owner, "it implements no hook", f"implement one of {', '.join(HOOK_NAMES)}")
    return Observer(owner, manager)


def _refused(owner: str, reason: str, fix: str) -> ConfigError:
    return ConfigError([error("M109", f"hook {owner} can't be used: {reason}", fix=fix)])
