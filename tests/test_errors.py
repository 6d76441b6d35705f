"""Errors cross processes: an actor raises them, the driver shows them."""

from __future__ import annotations

import pickle

import pytest

from molt_core.api.findings import error
from molt_core.errors import ActorLost, ConfigError, Interrupted, ObjectLost, PreflightError, RunError


@pytest.mark.parametrize(
    "raised",
    [
        ConfigError([error("M314", "there is no task", fix="--data FILE"), error("M301", "no file")]),
        PreflightError("no room"),
        RunError("it failed", reason="step"),
        ActorLost("engine-0 died", actor="engine-0", reason="no_answer"),
        ObjectLost("its owner died"),
        Interrupted("stopped by SIGTERM"),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_an_error_arrives_as_it_was_raised(raised):
    arrived = pickle.loads(pickle.dumps(raised))

    assert type(arrived) is type(raised)
    assert (str(arrived), vars(arrived)) == (str(raised), vars(raised))
