from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_gateway.retries import Attempt, Attempts


def test_equal_requests_on_live_connections_are_two_samples() -> None:
    attempts = Attempts[str]()
    attempts.begin("a", "first")
    assert attempts.join("a", retried=False) is None
    attempts.begin("a", "second")
    assert attempts.join("a", retried=False) is None
    # which of the two would it be?
    assert attempts.join("a", retried=True) is None


def test_a_repeat_joins_an_attempt_whose_connection_is_gone() -> None:
    attempts = Attempts[str]()
    first = attempts.begin("a", "first")
    attempts.begin("a", "second")
    attempts.gone(first, first.connection)
    assert attempts.join("b", retried=False) is None
    assert attempts.join("a", retried=False) is first
    # it has a live connection again
    assert attempts.join("a", retried=False) is None


def test_a_declared_retry_joins_the_only_candidate_even_if_its_connection_seems_alive() -> None:
    attempts = Attempts[str]()
    first = attempts.begin("a", "first")
    old = first.connection
    assert attempts.join("a", retried=True) is first
    # the end of the connection that it replaced is noticed late
    attempts.gone(first, old)
    assert attempts.join("a", retried=False) is None
    attempts.gone(first, first.connection)
    assert attempts.join("a", retried=False) is first


def test_a_delivered_answer_is_never_given_again() -> None:
    attempts = Attempts[str]()
    first = attempts.begin("a", "first")
    attempts.end(first)
    attempts.gone(first, first.connection)
    assert attempts.join("a", retried=True) is None
    assert len(attempts) == 0
    attempts.end(first)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["request", "retry", "gone", "deliver"]), st.sampled_from("ab"), st.integers(0, 5)
        )
    )
)
def test_each_answer_reaches_at_most_one_client_and_each_live_client_has_an_answer_of_its_own(
    steps: list[tuple[str, str, int]],
) -> None:
    attempts = Attempts[int]()
    clients: list[tuple[Attempt[int], int]] = []
    alive: list[tuple[Attempt[int], int]] = []
    delivered: set[int] = set()
    for number, (step, key, which) in enumerate(steps):
        if step in ("request", "retry"):
            attempt = attempts.join(key, retried=step == "retry") or attempts.begin(key, number)
            assert attempt.work not in delivered
            # a declared retry has given up the connection that it replaces
            alive = [each for each in alive if each[0] is not attempt]
            clients.append((attempt, attempt.connection))
            alive.append(clients[-1])
        elif clients and step == "gone":
            attempt, connection = clients[which % len(clients)]
            attempts.gone(attempt, connection)
            alive = [each for each in alive if each != (attempt, connection)]
        elif alive:
            attempt, _ = alive.pop(which % len(alive))
            assert attempt.work not in delivered
            delivered.add(attempt.work)
            attempts.end(attempt)
        assert len({id(attempt) for attempt, _ in alive}) == len(alive)
        assert all(attempt.live for attempt, _ in alive)
