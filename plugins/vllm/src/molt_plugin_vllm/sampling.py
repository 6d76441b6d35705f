"""Requests and replies in vLLM's terms. Pure.

Every field of SamplingParams that could change a distribution or an ending is written out:
the engine samples from exactly softmax(logits / temperature), whatever defaults vLLM has or a
model's generation_config.json asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from vllm.logprobs import FlatLogprobs
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

from molt_core.api.engine import GenerateRequest, Generation
from molt_core.errors import RunError

MIN_TEMPERATURE = 0.01
MAX_TEMPERATURE = 2.0


class _Params(SamplingParams):  # type: ignore[misc]
    def update_from_generation_config(self, *_: object) -> None:
        """Nothing: vLLM would let a grammar end with the eos tokens of the model's config, which end no reply."""


def sampling_params(
    request: GenerateRequest, *, max_tokens: int, end_token_ids: Sequence[int]
) -> SamplingParams:
    """Parameters of one request, whose reply may have `max_tokens` tokens.

    Raises:
        ValueError: vLLM would replace the temperature by another.
    """
    if request.temperature != 0 and not MIN_TEMPERATURE <= request.temperature <= MAX_TEMPERATURE:
        raise ValueError(
            f"request {request.request_id}: temperature {request.temperature:g}; vLLM samples at 0 (greedy) "
            f"or from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}"
        )
    return _Params(
        n=1,
        temperature=request.temperature,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        seed=request.seed,
        max_tokens=max_tokens,
        min_tokens=0,
        # end_token_ids alone end a reply; vLLM would add the eos of the model's config to them
        ignore_eos=True,
        stop_token_ids=list(end_token_ids),
        stop=list(request.stop),
        bad_words=[],
        logit_bias=None,
        allowed_token_ids=None,
        structured_outputs=_structure(request.json_schema),
        repetition_detection=None,
        thinking_token_budget=None,
        trace_decode_token_ids=None,
        watermarking=False,
        extra_args=None,
        # beside the sampled token's own
        logprobs=request.top_logprobs,
        flat_logprobs=True,
        prompt_logprobs=None,
        logprob_token_ids=None,
        # text is made only where it is looked at; stop texts may hold special tokens
        detokenize=bool(request.stop),
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_reading_prefix_cache=False,
    )


def _structure(json_schema: str | None) -> StructuredOutputsParams | None:
    if json_schema is None:
        return None
    if json_schema.strip() == "{}":
        return StructuredOutputsParams(json_object=True)
    return StructuredOutputsParams(json=json_schema)


def generation(
    output: CompletionOutput, *, end_token_ids: Sequence[int], top_logprobs: int = 0
) -> Generation:
    """The reply of a finished request that asked for `top_logprobs`.

    Raises:
        RunError: vLLM ended the request for another reason than a token or a length limit, or a
            sampled token lacks its log-probabilities or its version.
    """
    token_ids = list(output.token_ids)
    if output.finish_reason not in ("stop", "length") or not token_ids:
        raise RunError(
            f"vLLM ended a request after {len(token_ids)} tokens with {output.finish_reason!r}, "
            "wanted 'stop' or 'length'",
            reason="engine_error",
        )
    # for each token its own log-probability, then those of the likeliest
    logprobs, width = output.logprobs, 1 + top_logprobs
    if (
        not isinstance(logprobs, FlatLogprobs)
        or len(logprobs.token_ids) != width * len(token_ids)
        or logprobs.token_ids[::width] != token_ids
    ):
        raise RunError(
            f"vLLM returned {len(token_ids)} tokens without {width} log-probabilities for each",
            reason="engine_error",
        )
    values = np.array(logprobs.logprobs, np.float32).reshape(-1, width)
    # vLLM's reason is a text where one of `stop` ended the reply
    stopped = token_ids[-1] in end_token_ids or isinstance(output.stop_reason, str)
    return Generation(
        token_ids=token_ids,
        logprobs=values[:, 0],
        versions=_versions(output, len(token_ids)),
        finish_reason="stop" if stopped else "length",
        top_ids=np.array(logprobs.token_ids).reshape(-1, width)[:, 1:] if top_logprobs else None,
        top_logprobs=values[:, 1:] if top_logprobs else None,
    )


def _versions(output: CompletionOutput, num_tokens: int) -> np.ndarray:
    versions = np.full(num_tokens, -1, np.int32)
    for span in output.weight_versions or ():
        versions[span.start : span.end] = int(span.version)
    if (versions < 0).any():
        raise RunError(
            f"vLLM labelled {(versions >= 0).sum()} of {num_tokens} tokens with a policy version",
            reason="engine_error",
        )
    return versions
