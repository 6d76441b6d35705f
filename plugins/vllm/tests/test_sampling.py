from __future__ import annotations

import pytest
from attrs import evolve

from molt_core.api.engine import GenerateRequest
from molt_core.errors import RunError

pytest.importorskip("vllm")

from molt_plugin_vllm.sampling import generation, sampling_params
from vllm.logprobs import FlatLogprobs
from vllm.outputs import CompletionOutput, WeightVersionSpan
from vllm.sampling_params import SamplingParams

INERT = {
    # say how much is returned, or can't act without a field that is pinned
    "prompt_logprob_token_ids", "prompt_logprob_start", "include_stop_str_in_output", "stream_interval", "skip_clone",
    "output_text_buffer_length",
    "routed_experts_prompt_start",
}  # fmt: skip


def _request(temperature: float = 1.0) -> GenerateRequest:
    return GenerateRequest(request_id="r", token_ids=[1, 2], max_tokens=5, temperature=temperature, seed=3)


def _output(**changes: object) -> CompletionOutput:
    flat = FlatLogprobs([0, 1], [1, 2], [8, 9], [-1.0, -2.0], [1, 1], [None, None])
    fields = {
        "index": 0, "text": "", "token_ids": [8, 9], "cumulative_logprob": None, "logprobs": flat,
        "finish_reason": "length",
        "weight_versions": [WeightVersionSpan("3", 0, 1), WeightVersionSpan("4", 1, 2)],
    }  # fmt: skip
    return CompletionOutput(**(fields | changes))


def test_every_sampling_field_of_this_vllm_is_pinned_or_known_to_be_inert() -> None:
    import ast
    import inspect

    calls = [
        node for node in ast.walk(ast.parse(inspect.getsource(sampling_params))) if isinstance(node, ast.Call)
    ]
    call = next(node for node in calls if getattr(node.func, "id", "") == "_Params")
    pinned = {keyword.arg for keyword in call.keywords}
    public = {name for name in SamplingParams.__struct_fields__ if not name.startswith("_")}
    assert public == pinned | INERT


def test_only_the_given_tokens_end_a_reply() -> None:
    params = sampling_params(_request(), max_tokens=5, end_token_ids=(8, 9))
    assert params.ignore_eos
    assert params.stop_token_ids == [8, 9]


@pytest.mark.parametrize("temperature", [0.001, 2.5])
def test_a_temperature_that_vllm_would_replace_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="from 0.01 to 2"):
        sampling_params(_request(temperature), max_tokens=5, end_token_ids=())


def test_a_reply_has_tokens_logprobs_and_versions_side_by_side() -> None:
    reply = generation(_output(), end_token_ids=(9,))
    assert reply.token_ids.tolist() == [8, 9]
    assert reply.logprobs.tolist() == [-1.0, -2.0]
    assert reply.versions.tolist() == [3, 4]
    assert reply.finish_reason == "stop"


def test_a_reply_that_a_stop_text_ended_has_stopped() -> None:
    assert generation(_output(), end_token_ids=()).finish_reason == "length"
    stopped = _output(finish_reason="stop", stop_reason="</answer>")
    assert generation(stopped, end_token_ids=()).finish_reason == "stop"


def test_likely_tokens_stand_beside_each_sampled_one() -> None:
    assert sampling_params(_request(), max_tokens=5, end_token_ids=()).logprobs == 0
    asked = evolve(_request(), top_logprobs=2)
    assert sampling_params(asked, max_tokens=5, end_token_ids=()).logprobs == 2
    # each place begins with the sampled token, which the second time is not among the likeliest
    flat = FlatLogprobs(
        [0, 3],
        [3, 6],
        [8, 8, 7, 9, 5, 6],
        [-0.5, -0.5, -1.5, -4.0, -0.25, -2.0],
        [1, 1, 2, 9, 1, 2],
        [None] * 6,
    )
    reply = generation(_output(logprobs=flat), end_token_ids=(9,), top_logprobs=2)
    assert reply.logprobs.tolist() == [-0.5, -4.0]
    assert reply.top_ids.tolist() == [[8, 7], [5, 6]]
    assert reply.top_logprobs.tolist() == [[-0.5, -1.5], [-0.25, -2.0]]
    assert generation(_output(), end_token_ids=(9,)).top_ids is None
    with pytest.raises(RunError, match="2 tokens without 3 log-probabilities for each"):
        generation(_output(), end_token_ids=(9,), top_logprobs=2)


def test_text_is_made_only_where_a_stop_text_is_given() -> None:
    assert not sampling_params(_request(), max_tokens=5, end_token_ids=()).detokenize
    params = sampling_params(evolve(_request(), stop=("END",)), max_tokens=5, end_token_ids=())
    assert params.detokenize
    assert params.stop == ["END"]


def test_only_the_given_tokens_may_end_a_grammar() -> None:
    params = sampling_params(evolve(_request(), json_schema="{}"), max_tokens=5, end_token_ids=(8,))
    params.update_from_generation_config({"eos_token_id": [3, 4]}, 2)
    assert params.all_stop_token_ids == {8}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"logprobs": None}, "without 1 log-probabilities"),
        ({"token_ids": [8, 7]}, "without 1 log-probabilities"),
        ({"finish_reason": "abort"}, "abort"),
        ({"weight_versions": None}, "labelled 0 of 2"),
        ({"weight_versions": [WeightVersionSpan("3", 0, 1)]}, "labelled 1 of 2"),
    ],
)
def test_a_reply_with_anything_missing_is_an_error_never_a_default(
    changes: dict[str, object], said: str
) -> None:
    with pytest.raises(RunError, match=said):
        generation(_output(**changes), end_token_ids=(9,))
