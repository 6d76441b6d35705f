from __future__ import annotations

import pytest

from molt_core.api.events import RunFinished, StepFinished
from molt_core.api.hookspecs import hookimpl
from molt_core.errors import ConfigError
from molt_core.plugins.observer import HOOK_NAMES, HOOK_OF, registered

STEP = StepFinished(step=1, metrics={})


def refused(plugin: object):
    with pytest.raises(ConfigError) as caught:
        registered("acme 1.0", plugin)
    (finding,) = caught.value.findings
    assert "acme 1.0" in finding.message
    return finding


def test_every_event_has_a_hook_and_every_hook_an_event():
    assert sorted(HOOK_OF.values()) == sorted(HOOK_NAMES)


def test_an_observer_is_told_only_of_what_it_watches():
    class Steps:
        seen: list[object] = []  # noqa: RUF012

        @hookimpl
        def molt_step_finished(self, event):
            self.seen.append(event)

    observer = registered("steps", Steps())
    observer.tell(STEP)
    observer.tell(RunFinished(outcome="done", step=1, ledger={}))
    assert Steps.seen == [STEP]
    assert observer.watches == {"molt_step_finished"}


def test_a_misspelt_hook_names_the_nearest():
    class Misspelt:
        @hookimpl
        def molt_step_finnished(self, event):
            """Never called."""

    finding = refused(Misspelt())
    assert "there is no hook 'molt_step_finnished'" in finding.message
    assert finding.fix == "rename it to molt_step_finished"


def test_a_hook_of_a_newer_core_may_be_marked_optional():
    class Newer:
        @hookimpl
        def molt_step_finished(self, event):
            """Known."""

        @hookimpl(optionalhook=True)
        def molt_tea_served(self, event):
            """Of a later version."""

    assert registered("newer", Newer()).watches == {"molt_step_finished"}


def test_another_signature_is_refused():
    class Old:
        @hookimpl
        def molt_step_finished(self, step, metrics):
            """Never called."""

    assert refused(Old()).fix == "take one argument: `event`"


def test_an_unmarked_hook_is_refused():
    class Unmarked:
        @hookimpl
        def molt_run_started(self, event):
            """Marked."""

        def molt_step_finished(self, event):
            """Looks like a hook and would never be called."""

    assert "molt_step_finished is not marked" in refused(Unmarked()).message


def test_a_coroutine_is_refused():
    class Async:
        @hookimpl
        async def molt_step_finished(self, event):
            """Nobody would await it."""

    assert "is a coroutine" in refused(Async()).message


def test_an_object_without_hooks_is_refused():
    assert "implements no hook" in refused(object()).message


class Failing:
    """Raises where `fails` says so."""

    def __init__(self, fails: list[bool], failure: BaseException) -> None:
        self.fails, self.failure, self.num_calls = iter(fails), failure, 0

    @hookimpl
    def molt_step_finished(self, event):
        self.num_calls += 1
        if next(self.fails):
            raise self.failure


@pytest.mark.parametrize("failure", [OSError("disk full"), SystemExit(1)])
def test_three_failures_in_a_row_switch_an_observer_off(failure):
    plugin = Failing([True] * 9, failure)
    observer = registered("writer (acme 1.0)", plugin)
    for _ in range(9):
        observer.tell(STEP)
    assert plugin.num_calls == 3
    assert observer.switched_off
    assert observer.describe_failures() == (
        "hook writer (acme 1.0) failed 3 times, switched off after 3 in a row; last: "
        f"molt_step_finished raised {type(failure).__name__}: {failure}"
    )


def test_a_success_between_failures_starts_the_count_again():
    plugin = Failing([True, True, False] * 3, ValueError("odd"))
    observer = registered("flaky", plugin)
    for _ in range(9):
        observer.tell(STEP)
    assert (plugin.num_calls, observer.num_failures, observer.switched_off) == (9, 6, False)


def test_the_traceback_is_logged_once(caplog):
    observer = registered("flaky", Failing([True, True], ValueError("odd")))
    observer.tell(STEP)
    observer.tell(STEP)
    (record,) = caplog.records
    assert "flaky failed in molt_step_finished" in record.message
    assert record.exc_info[0] is ValueError
