"""Schema: construction, every invariant, and the codec."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molt_core.experience import LeftOut, Outcome, Rollout, Segment, TurnReward
from molt_core.experience.checks import ROLLOUT_CHECKS, SEGMENT_CHECKS, violations
from molt_core.experience.codec import decode, encode
from molt_core.experience.rollout import summarize

SOUND = Segment.from_turn([5, 6], [7, 8], [-0.5, -0.25], [3, 4])


def rollout(segment: Segment = SOUND, **changes) -> Rollout:
    fields = {
        "rollout_id": "1-0", "group_id": "1", "segments": (segment,), "outcome": Outcome.FINISHED, "reward": 1.0,
    }  # fmt: skip
    return Rollout(**(fields | changes))


def test_a_turn_becomes_a_segment_with_one_token_axis():
    assert SOUND.token_ids.tolist() == [5, 6, 7, 8]
    assert SOUND.sampled.tolist() == [False, False, True, True]
    assert SOUND.logprobs.tolist() == [0, 0, -0.5, -0.25]
    assert SOUND.versions.tolist() == [-1, -1, 3, 4]
    assert (SOUND.num_tokens, SOUND.num_sampled) == (4, 2)


def test_a_sound_rollout_breaks_nothing():
    assert violations(rollout()) == []


def test_likely_tokens_may_be_impossible_and_need_not_hold_the_sampled_one():
    assert violations(rollout(top([-0.5, -np.inf], [-1.5, -2]))) == []


def left_out(segment: Segment = SOUND, reason: str = "orphan") -> dict[str, tuple[LeftOut, ...]]:
    return {"left_out": (LeftOut(reason=reason, segment=segment),)}


def turns(*rewards: tuple[int, int, float]) -> dict[str, tuple[TurnReward, ...]]:
    return {"turn_rewards": tuple(TurnReward(segment=s, token=t, reward=r) for s, t, r in rewards)}


def test_turn_rewards_on_sampled_tokens_that_sum_to_the_reward_break_nothing():
    assert violations(rollout(**turns((0, 2, 0.75), (0, 3, 0.25)), **left_out())) == []


def broken(**changes) -> Segment:
    return attrs.evolve(SOUND, **changes)


def top(*logprobs: list[float]) -> Segment:
    """The second token is not among its two likeliest."""
    return broken(top_ids=[[7, 3], [4, 2]], top_logprobs=logprobs)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (rollout(broken(versions=[-1, -1, 3])), "one_token_axis"),
        (rollout(broken(token_ids=[5, -6, 7, 8])), "token_ids_are_valid"),
        (rollout(Segment.from_turn([], [7], [-1.0], [0])), "first_token_is_given"),
        (rollout(broken(logprobs=[0, 0, np.nan, -1])), "sampled_logprobs_are_finite"),
        (rollout(broken(logprobs=[0, 0, 0.5, -1])), "sampled_logprobs_are_finite"),
        (rollout(broken(logprobs=[0, -1, -1, -1])), "given_tokens_carry_nothing"),
        (rollout(broken(versions=[-1, 0, 3, 4])), "given_tokens_carry_nothing"),
        (rollout(broken(versions=[-1, -1, -1, 4])), "sampled_tokens_have_versions"),
        (rollout(broken(versions=[-1, -1, 4, 3])), "versions_never_go_back"),
        (rollout(broken(top_ids=[[7], [8]])), "top_logprobs_fit"),
        (rollout(broken(top_ids=[[7], [8]], top_logprobs=[[-0.5, -1], [-0.25, -1]])), "top_logprobs_fit"),
        (rollout(broken(top_ids=[[7]], top_logprobs=[[-0.5]])), "top_logprobs_fit"),
        (rollout(broken(top_ids=[[7], [-8]], top_logprobs=[[-0.5], [-0.25]])), "top_logprobs_fit"),
        (rollout(top([-0.4, -2], [-1.5, -2])), "top_logprobs_agree"),
        (rollout(top([-0.5, -0.4], [-1.5, -2])), "top_logprobs_agree"),
        (rollout(top([-0.5, -2], [-0.1, -0.5])), "top_logprobs_agree"),
        (rollout(top([-0.5, np.nan], [-1.5, -2])), "top_logprobs_agree"),
        (rollout(Segment.from_turn([5], [], [], [])), "trainable_has_sampled_tokens"),
        (rollout(reward=None), "trainable_has_finite_reward"),
        (rollout(reward=float("nan")), "trainable_has_finite_reward"),
        (rollout(outcome=Outcome.FAILED, reward=None), "excluded_has_reason_and_no_reward"),
        (rollout(outcome=Outcome.ABSTAINED, reward=0.0, reason="x"), "excluded_has_reason_and_no_reward"),
        (rollout(**left_out(reason="")), "left_out_has_reason_and_tokens"),
        (rollout(**left_out(Segment.from_turn([5], [], [], []))), "left_out_has_reason_and_tokens"),
        (rollout(**left_out(broken(versions=[-1, -1, 4, 3]))), "versions_never_go_back"),
        (rollout(**turns((1, 2, 1.0))), "turn_rewards_lie_on_sampled_tokens"),
        (rollout(**turns((0, 1, 1.0))), "turn_rewards_lie_on_sampled_tokens"),
        (rollout(**turns((0, 4, 1.0))), "turn_rewards_lie_on_sampled_tokens"),
        (rollout(**turns((0, 2, 0.5))), "turn_rewards_sum_to_the_reward"),
    ],
)
def test_each_invariant_is_reported_by_its_name(wrong, name):
    assert [text.split()[0].rstrip(":") for text in violations(wrong)] == [name]


def test_every_check_has_a_case_above():
    covered = {case[1] for case in test_each_invariant_is_reported_by_its_name.pytestmark[0].args[1]}
    assert covered == {check.__name__ for check in (*SEGMENT_CHECKS, *ROLLOUT_CHECKS)}


segments = st.integers(1, 5).flatmap(
    lambda num_prompt: st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.floats(-50, 0, width=32), st.integers(0, 9)), max_size=6
    ).map(
        lambda reply: Segment.from_turn(
            list(range(num_prompt)), [r[0] for r in reply], [r[1] for r in reply], sorted(r[2] for r in reply)
        )
    )
)


@given(
    st.builds(
        Rollout,
        rollout_id=st.text(),
        group_id=st.text(),
        segments=st.lists(segments, max_size=3).map(tuple),
        outcome=st.sampled_from(Outcome),
        reward=st.none() | st.floats(allow_nan=False),
        reason=st.text(),
        detail=st.text(),
        left_out=st.lists(st.builds(LeftOut, reason=st.text(), segment=segments), max_size=2).map(tuple),
        turn_rewards=st.lists(
            st.builds(TurnReward, segment=st.integers(0), token=st.integers(0), reward=st.floats(-9, 9)),
            max_size=2,
        ).map(tuple),
        info=st.dictionaries(st.text(), st.floats(allow_nan=False)),
        prompt_text=st.text(),
        reply_text=st.text(),
        seconds=st.floats(0, 1e6),
    )
)
def test_bytes_hold_everything(original):
    assert decode(encode(original)) == original


def test_bytes_hold_likely_tokens_of_those_segments_that_have_them():
    original = rollout(segments=(SOUND, top([-0.5, -2], [-1.5, -2])), **left_out(top([-0.5, -2], [-1.5, -2])))
    assert violations(original) == []
    assert decode(encode(original)) == original
    assert decode(encode(original)) != rollout(segments=(SOUND, top([-0.5, -2], [-1.5, -3])), **left_out())


@pytest.mark.parametrize("data", [b"", b"\x80\x04pickle", encode(rollout())[:20], b"\x02\0\0\0\0\0\0\0{}"])
def test_bytes_that_are_no_rollout_are_refused(data):
    with pytest.raises(ValueError, match="hold no rollout"):
        decode(data)


def test_another_schema_is_refused_with_both_numbers():
    data = encode(rollout()).replace(b'\\"schema\\": 3', b'\\"schema\\": 9')
    with pytest.raises(ValueError, match="schema 9.*reads 3"):
        decode(data)


def test_the_summary_counts_without_holding_tokens():
    summary = summarize(rollout(segments=(SOUND, SOUND), reply_text="x" * 5000), payload="reference")

    assert summary.segment_tokens == (4, 4)
    assert summary.num_sampled == 4
    assert (summary.oldest_version, summary.newest_version) == (3, 4)
    assert summary.trains
    assert len(summary.reply_text.encode()) == 256


def test_the_summary_counts_left_out_tokens_by_reason_and_apart_from_those_that_train():
    parts = tuple(LeftOut(reason=reason, segment=SOUND) for reason in ("orphan", "side_call", "orphan"))
    summary = summarize(rollout(left_out=parts), payload=None)

    assert summary.left_out_tokens == {"orphan": 4, "side_call": 2}
    assert (summary.num_sampled, summary.num_generated) == (2, 8)


def test_a_rollout_without_sampled_tokens_does_not_train():
    empty = Segment.from_turn([1], [], [], [])
    assert not summarize(rollout(empty), payload=None).trains
