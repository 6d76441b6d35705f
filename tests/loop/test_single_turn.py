"""One rollout: exact tokens in, an outcome out, whatever the environment does."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from molt_core.api.environment import Score
from molt_core.data.tasks import Task
from molt_core.errors import RunError
from molt_core.experience import Outcome, Rollout
from molt_core.loop import user_code
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.single_turn import run_rollout
from molt_core.testing import FakeEngine


class Letters:
    """A chat whose tokens are character codes."""

    def render(self, messages):
        return [ord(letter) for letter in messages[-1]["content"]]

    def decode(self, token_ids):
        return "".join(chr(token) for token in token_ids if token)


class Echo:
    """An environment graded by a function."""

    def __init__(self, score):
        self._score = score

    def prompt(self, row):
        return [{"role": "user", "content": row["question"]}]

    def score(self, row, reply):
        return self._score(row, reply)


def rollout_of(
    score,
    *,
    question="hi",
    engine=None,
    timeout_s=5.0,
    env_timeout_s=5.0,
    max_tokens=8,
    max_length=64,
    top_logprobs=0,
) -> Rollout:
    engine = engine or FakeEngine(reply=lambda prompt: [*prompt, 0])
    request = RolloutRequest(
        rollout_id="0-0", group_id="0", task=Task(task_id="t", row={"question": question}), temperature=1.0,
        max_tokens=max_tokens, seed=1, timeout_s=timeout_s, top_logprobs=top_logprobs,
    )  # fmt: skip
    return asyncio.run(
        run_rollout(
            request,
            environment=Echo(score),
            generate=engine.generate,
            chat=Letters(),
            max_length=max_length,
            env_timeout_s=env_timeout_s,
        )
    )


def test_segment_holds_exactly_what_the_engine_was_given_and_returned():
    rollout = rollout_of(lambda row, reply: reply.text == "hi")

    (segment,) = rollout.segments
    assert rollout.outcome is Outcome.FINISHED
    assert rollout.reward == 1.0
    assert segment.token_ids.tolist() == [104, 105, 104, 105, 0]
    assert segment.sampled.tolist() == [False, False, True, True, True]
    assert segment.versions.tolist() == [-1, -1, 0, 0, 0]


def test_likely_tokens_are_in_the_segment_where_they_are_wanted():
    (segment,) = rollout_of(lambda row, reply: 1.0, top_logprobs=3).segments
    assert segment.top_ids.shape == segment.top_logprobs.shape == (segment.num_sampled, 3)
    (segment,) = rollout_of(lambda row, reply: 1.0).segments
    assert segment.top_ids is None
    assert segment.top_logprobs is None


def test_a_reply_cut_by_its_limit_is_truncated_and_still_graded():
    rollout = rollout_of(lambda row, reply: 0.5 if reply.truncated else 0.0, question="hello", max_tokens=2)

    assert rollout.outcome is Outcome.TRUNCATED
    assert rollout.reward == 0.5


def test_max_tokens_is_cut_to_what_the_model_has_room_for():
    engine = FakeEngine(reply=lambda prompt: [1] * 100)
    rollout_of(lambda row, reply: 1.0, engine=engine, max_length=5, max_tokens=50)

    assert engine.requests[0].max_tokens == 3


def test_a_prompt_longer_than_the_model_fails_with_the_numbers():
    rollout = rollout_of(lambda row, reply: 1.0, question="much too long", max_length=6)

    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "prompt_too_long")
    assert "13 tokens" in rollout.detail
    assert "6" in rollout.detail


def raising(row, reply):
    raise KeyError("answer")


def returning(value):
    return lambda row, reply: value


@pytest.mark.parametrize(
    ("score", "outcome", "reason", "said"),
    [
        (raising, Outcome.FAILED, "reward_error", "KeyError: 'answer'"),
        (returning("1.0"), Outcome.FAILED, "reward_error", "'1.0' of type str"),
        (returning([1.0]), Outcome.FAILED, "reward_error", "of type list"),
        (returning(None), Outcome.ABSTAINED, "abstained", "None"),
        (returning(math.nan), Outcome.ABSTAINED, "reward_not_finite", "nan"),
        (returning(math.inf), Outcome.ABSTAINED, "reward_not_finite", "inf"),
        (returning(Score(reward=None)), Outcome.ABSTAINED, "abstained", "None"),
    ],
)
def test_what_is_no_reward_is_excluded_with_a_reason_and_never_zero(score, outcome, reason, said):
    rollout = rollout_of(score)

    assert (rollout.outcome, rollout.reason, rollout.reward) == (outcome, reason, None)
    assert said in rollout.detail
    assert rollout.segments, "the tokens are kept, so that the ledger can count them"


def test_the_detail_of_an_error_names_its_place():
    rollout = rollout_of(raising)

    assert f"{__file__}:" in rollout.detail


def test_async_graders_are_awaited():
    async def score(row, reply):
        await asyncio.sleep(0)
        return 0.25

    assert rollout_of(score).reward == 0.25


def test_a_grader_that_blocks_is_timed_out_and_named():
    rollout = rollout_of(lambda row, reply: time.sleep(3), timeout_s=1.0)

    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "timeout")
    assert "grading the reply" in rollout.detail


def test_a_grader_has_a_deadline_of_its_own():
    rollout = rollout_of(lambda row, reply: time.sleep(3), env_timeout_s=1.0)

    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "timeout")
    assert "Echo.score within 1 s (env_timeout_s)" in rollout.detail


def test_a_grader_that_will_not_be_cancelled_is_left_behind(monkeypatch):
    monkeypatch.setattr(user_code, "UNWIND_S", 0.1)

    async def stubborn(row, reply):
        for _ in range(4):
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                continue
        return 1.0

    rollout = rollout_of(stubborn, env_timeout_s=0.1)

    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "timeout")
    assert "within 0.1 s (env_timeout_s)" in rollout.detail


def test_a_grader_may_ask_the_engine_and_that_is_no_part_of_the_rollout():
    async def score(row, reply):
        return float(await reply.judge("good?") == "good?")

    engine = FakeEngine(reply=lambda prompt: [*prompt, 0])
    rollout = rollout_of(score, engine=engine)

    assert rollout.reward == 1.0
    assert len(rollout.segments[0].token_ids) == 5
    assert [request.request_id for request in engine.requests] == ["0-0", "0-0/judge-0"]


def test_numbers_of_the_grader_that_are_none_fail_the_rollout():
    assert rollout_of(lambda row, reply: Score(reward=1, info={"n": "x"})).reason == "reward_error"


def test_code_that_ends_the_interpreter_fails_its_rollout():
    def leaves(row, reply):
        raise SystemExit(3)

    assert "SystemExit(3)" in rollout_of(leaves).detail


def test_a_lost_engine_concerns_the_run_and_is_raised():
    class Lost(FakeEngine):
        async def generate(self, request):
            raise RunError("engine-0 died")

    with pytest.raises(RunError, match="engine-0 died"):
        rollout_of(lambda row, reply: 1.0, engine=Lost())


def test_an_engine_that_is_lost_while_a_grader_asks_it_is_raised_even_if_the_grader_looks_away():
    class Mortal(FakeEngine):
        async def generate(self, request):
            if "judge" in request.request_id:
                raise RunError("engine-0 died")
            return await super().generate(request)

    async def score(row, reply):
        try:
            return float(await reply.judge("Is it good?") == "yes")
        except Exception:
            return 0.0

    with pytest.raises(RunError, match="engine-0 died"):
        rollout_of(score, engine=Mortal())


def test_a_reply_that_breaks_an_invariant_is_dropped_with_its_name():
    class Wrong(FakeEngine):
        async def generate(self, request):
            from attrs import evolve

            return evolve(await super().generate(request), logprobs=[math.nan, -1.0, -1.0])

    rollout = rollout_of(lambda row, reply: 1.0, engine=Wrong(reply=lambda prompt: [1, 2, 3]))

    assert (rollout.outcome, rollout.reason) == (Outcome.FAILED, "invalid_rollout")
    assert "sampled_logprobs_are_finite" in rollout.detail


def test_reply_text_and_numbers_of_the_grader_are_kept():
    rollout = rollout_of(lambda row, reply: Score(reward=1, info={"length": len(reply.text)}))

    assert rollout.reply_text == "hi"
    assert rollout.info == {"length": 2}
