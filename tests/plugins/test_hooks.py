from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from molt_core.api.events import RolloutFinished, RunFinished, RunStarted, StepFinished
from molt_core.api.hookspecs import hookimpl
from molt_core.errors import ConfigError
from molt_core.plugins.hooks import Hooks

PATIENCE_S = 30


def step(number: int) -> StepFinished:
    return StepFinished(step=number, metrics={})


def rollout(number: int) -> RolloutFinished:
    return RolloutFinished(step=number, summary=None)  # type: ignore[arg-type]


class Recorder:
    """Notes what it is told; `gate` holds it back, `entered` says that it has begun."""

    def __init__(self, log: list[object] | None = None, name: str = "", *, open: bool = True) -> None:
        self.log = [] if log is None else log
        self.name = name
        self.gate, self.entered = threading.Event(), threading.Event()
        if open:
            self.gate.set()

    def note(self, event: object) -> None:
        self.entered.set()
        self.gate.wait(PATIENCE_S)
        self.log.append((self.name, event) if self.name else event)

    @hookimpl
    def molt_step_finished(self, event):
        self.note(event)

    @hookimpl
    def molt_rollout_finished(self, event):
        self.note(event)

    @hookimpl
    def molt_run_finished(self, event):
        self.note(event)


class Broken:
    @hookimpl
    def molt_step_finished(self, event):
        raise RuntimeError("no")


def test_events_arrive_in_order_at_observers_in_the_order_of_their_names():
    log: list[object] = []
    hooks = Hooks([("b", Recorder(log, "b")), ("a", Recorder(log, "a"))])
    hooks.notify(step(1))
    hooks.notify(step(2))
    assert hooks.close() == ()
    assert log == [("a", step(1)), ("b", step(1)), ("a", step(2)), ("b", step(2))]


def test_an_observer_that_raises_stops_neither_the_others_nor_the_run():
    recorder = Recorder()
    hooks = Hooks([("a broken one (acme 1.0)", Broken()), ("recorder", recorder)])
    for number in range(5):
        hooks.notify(step(number))
    (line,) = hooks.close()
    assert line.startswith("hook a broken one (acme 1.0) failed 3 times, switched off after 3 in a row")
    assert recorder.log == [step(number) for number in range(5)]


def test_observers_that_cannot_be_registered_are_all_named_and_none_is_half_in():
    class Misspelt:
        @hookimpl
        def molt_step_finished(self, event):
            """Fine in itself."""

        @hookimpl
        def molt_stp_finished(self, event):
            """Not a hook."""

    running = threading.active_count()
    with pytest.raises(ConfigError) as caught:
        Hooks([("one", Misspelt()), ("good", Recorder()), ("two", object())])
    assert ["one" in caught.value.findings[0].message, "two" in caught.value.findings[1].message] == [
        True,
        True,
    ]
    assert threading.active_count() == running


def test_observers_run_on_one_thread_that_is_not_the_callers():
    threads = set()

    class Where:
        @hookimpl
        def molt_step_finished(self, event):
            threads.add(threading.current_thread().name)

    hooks = Hooks([("one", Where()), ("two", Where())])
    hooks.notify(step(1))
    hooks.close()
    assert threads == {"molt-hooks"}


def held_back(queue_size: int) -> tuple[Hooks, Recorder]:
    """Hooks whose only observer is stuck in a first event, so that the queue is empty and stays as filled."""
    recorder = Recorder(open=False)
    hooks = Hooks([("slow", recorder)], queue_size=queue_size)
    hooks.notify(step(0))
    assert recorder.entered.wait(PATIENCE_S)
    return hooks, recorder


def test_a_full_queue_drops_new_rollouts_and_counts_them():
    hooks, recorder = held_back(queue_size=2)
    for number in range(5):
        hooks.notify(rollout(number))
    recorder.gate.set()
    (line,) = hooks.close()
    assert recorder.log == [step(0), rollout(0), rollout(1)]
    assert line == "hooks were slower than the run and missed 3 RolloutFinished; most time went to slow"


def test_in_a_full_queue_other_events_take_the_place_of_the_oldest_rollout():
    hooks, recorder = held_back(queue_size=3)
    for event in [step(1), rollout(1), rollout(2), step(2), RunFinished(outcome="done", step=2, ledger={})]:
        hooks.notify(event)
    recorder.gate.set()
    (line,) = hooks.close()
    assert recorder.log == [step(0), step(1), step(2), RunFinished(outcome="done", step=2, ledger={})]
    assert "missed 2 RolloutFinished" in line


def test_in_a_queue_full_of_steps_the_oldest_goes_and_the_end_of_the_run_is_kept():
    hooks, recorder = held_back(queue_size=2)
    for event in [step(1), step(2), RunFinished(outcome="done", step=2, ledger={})]:
        hooks.notify(event)
    recorder.gate.set()
    (line,) = hooks.close()
    assert recorder.log == [step(0), step(2), RunFinished(outcome="done", step=2, ledger={})]
    assert "missed 1 StepFinished" in line


def test_events_that_nobody_watches_do_not_fill_the_queue():
    class Steps:
        @hookimpl
        def molt_step_finished(self, event):
            """Watches steps alone."""

    hooks = Hooks([("steps", Steps())], queue_size=1)
    for number in range(100):
        hooks.notify(rollout(number))
    assert hooks.close() == ()


def test_close_gives_up_at_its_deadline_and_says_who_hangs():
    hooks, recorder = held_back(queue_size=4)
    hooks.notify(step(1))
    lines = hooks.close(deadline_s=0.01)
    recorder.gate.set()
    assert lines == (
        "hook slow did not return from molt_step_finished in 0.01 s",
        "hooks were not done within 0.01 s, 1 events were not delivered",
    )


def test_close_twice_gives_the_same_report_and_later_events_are_ignored():
    recorder = Recorder()
    hooks = Hooks([("recorder", recorder), ("x", Broken())])
    hooks.notify(step(1))
    lines = hooks.close()
    hooks.notify(step(2))
    assert hooks.close() == lines
    assert recorder.log == [step(1)]


def test_without_observers_there_is_no_thread():
    running = threading.active_count()
    hooks = Hooks([])
    hooks.notify(step(1))
    assert threading.active_count() == running
    assert hooks.close() == ()


class Tracker:
    """Goes on with the run of a tracking service, whose id it remembers."""

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.log: list[object] = []

    @hookimpl
    def molt_run_started(self, event):
        self.run_id = self.run_id or f"id of {event.run_folder}"
        self.log.append(self.run_id)

    @hookimpl
    def molt_step_finished(self, event):
        self.log.append(event)

    def state(self):
        return {"run_id": self.run_id}

    def restore(self, state):
        self.log.append("restored")
        self.run_id = state["run_id"]


def started(folder: str) -> RunStarted:
    return RunStarted(run_folder=Path(folder), plan={})


def test_what_an_observer_remembers_comes_back_before_the_run_starts_again_whatever_its_version():
    hooks = Hooks([("tracker (acme 1.0)", Tracker()), ("recorder (acme 1.0)", Recorder())])
    hooks.notify(started("first"))
    hooks.close()
    state = json.loads(json.dumps(hooks.state()))
    assert state == {"tracker": {"run_id": "id of first"}}

    tracker = Tracker()
    hooks = Hooks([("tracker (acme 1.1)", tracker), ("new (acme 1.1)", Tracker())])
    hooks.restore(state)
    hooks.notify(started("second"))
    hooks.close()
    assert tracker.log == ["restored", "id of first"]
    assert hooks.state()["tracker"] == {"run_id": "id of first"}
    assert hooks.state()["new"] == {"run_id": "id of second"}


def test_a_state_that_cannot_be_saved_or_restored_is_reported_and_costs_no_checkpoint():
    class Odd(Tracker):
        def state(self):
            return {"run_id": object()}

    class Forgetful(Tracker):
        def restore(self, state):
            raise KeyError("run")

    hooks = Hooks([("forgetful (acme 1.0)", Forgetful()), ("odd (acme 1.0)", Odd())])
    hooks.restore({"forgetful": {"run_id": "7"}})
    hooks.notify(step(1))
    forgetful, odd = hooks.close()
    assert "hook forgetful (acme 1.0) failed 1 times; last: restore raised KeyError: 'run'" in forgetful
    assert "hook odd (acme 1.0) failed 1 times; last: molt_step_finished raised TypeError" in odd
    json.dumps(hooks.state())
