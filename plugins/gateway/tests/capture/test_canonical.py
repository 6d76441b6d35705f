"""Which turns are one and the same, and which are not."""

from __future__ import annotations

import pytest
from attrs import evolve
from capture_kit import result, run, said, user
from molt_plugin_gateway.capture.canonical import agrees, digest, digests, same_calls
from molt_plugin_gateway.exchange import Image, Turn


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("a", "b"), user("ab")),
        (said(" a\n"), said("a")),
        (said(""), Turn(role="assistant", content=(" ",))),
        (said("a", reasoning="because"), said("a")),
        (said("", run("c1", '{"cmd":  "ls", "n": 1.0}')), said("", run("c9", '{"n":1,"cmd":"ls"}'))),
        (said("", run("c1", "")), said("", run("c1", "{}"))),
        (said("", run("c1", '{"x": "\\u00e9\\ud83d\\ude00"}')), said("", run("c1", '{"x": "é😀"}'))),
    ],
)
def test_what_clients_change_on_the_way_makes_no_difference(one: Turn, other: Turn) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("a"), user("a ")),
        (user("a"), said("a")),
        (said("a b"), said("a  b")),
        (said("", run("c1", '{"cmd": "echo h')), said("", run("c1", '{"cmd": "echo h"}'))),
        (said("", run("c1", '"{}"')), said("", run("c1", "{}"))),
        (said("", run("c1")), said("", run("c1", name="invalid"))),
        (said("", run("c1"), run("c2")), said("", run("c1"))),
        (result("c1"), result("c2")),
        (
            Turn(role="user", content=("a", Image(url="x"), "b")),
            Turn(role="user", content=(Image(url="x"), "ab")),
        ),
        (Turn(role="user", content=(Image(url="x"),)), Turn(role="user", content=(Image(url="y"),))),
    ],
)
def test_other_words_are_another_turn(one: Turn, other: Turn) -> None:
    assert digest(one) != digest(other)


def test_order_of_neighbouring_results_makes_no_difference() -> None:
    calling = said("", run("c1"), run("c2"))
    in_order = [calling, result("c1", "a"), result("c2", "b"), user("q"), result("c1", "late")]
    other = [calling, result("c2", "b"), result("c1", "a"), user("q"), result("c1", "late")]
    assert digests(in_order) == digests(other)
    assert digests(in_order) != digests([*in_order[:2], in_order[3], in_order[2], in_order[4]])


def test_any_text_has_a_digest() -> None:
    for text in ("\ud800", "\0", "🙂", '{"a": ' * 50_000, "1" * 5000, "NaN", "1e999"):
        assert len(digest(said(text, run("c1", text)))) == 16


def test_reasoning_may_be_absent_or_trimmed_but_not_changed() -> None:
    reply = said("a", reasoning="because\n ")
    assert agrees(said("a", reasoning="because"), reply)
    assert agrees(said("a"), reply)
    assert agrees(said("a", reasoning=""), reply)
    assert not agrees(said("a", reasoning="for no reason"), reply)
    assert not agrees(said("a", reasoning="because"), evolve(reply, reasoning=None))


def test_calls_are_told_apart_by_their_ids() -> None:
    assert same_calls(said("", run("c1")), said("", run("c1", "{}")))
    assert not same_calls(said("", run("c1")), said("", run("c2")))
