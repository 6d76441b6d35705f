"""Spec of the engine `vllm`: options and facts. Imports nothing heavy."""

from __future__ import annotations

import json
from typing import Any, Final

from molt_core.api.facts import SAMPLED_LOGPROBS, TOP_LOGPROBS, Facts
from molt_core.api.options import option, options
from molt_core.api.spec import EngineSpec

PINNED: Final = frozenset(
    {
        "model", "dtype", "seed", "max_model_len", "max_num_seqs", "logprobs_mode", "max_logprobs", "generation_config",
        "override_generation_config", "skip_tokenizer_init", "weight_transfer_config", "worker_extension_cls",
        "kv_cache_memory_bytes", "enforce_eager", "enable_prefix_caching",
    }
)  # fmt: skip
"""Arguments of vLLM that the engine sets itself, for exactness or from options and core options."""


def parse_args(args: tuple[str, ...]) -> dict[str, Any]:
    """`("block_size=32",)` to `{"block_size": 32}`.

    Raises:
        ValueError: saying what is wanted.
    """
    parsed: dict[str, Any] = {}
    for arg in args:
        name, equals, value = arg.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"must be name=value with value in JSON, got {arg!r}")
        if name in PINNED:
            raise ValueError(f"must not set {name}: the engine, one of its options or a core option does")
        try:
            parsed[name] = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"must be name=value with value in JSON, got {arg!r}: {error}") from error
    return parsed


def _wrong_args(args: tuple[str, ...]) -> str | None:
    try:
        parse_args(args)
    except ValueError as error:
        return str(error)
    return None


@options
class VllmOptions:
    kv_cache_gib: float | None = option(
        None, help="memory for the KV cache in GiB; default: 1 on CPU, what vLLM finds free on a GPU", gt=0
    )
    eager: bool | None = option(
        None, help="run without torch.compile and CUDA graphs; default: yes on CPU, no on a GPU"
    )
    prefix_caching: bool = option(True, help="share the KV cache of common prefixes between requests")
    args: tuple[str, ...] = option(
        (), help="further engine arguments of vLLM, each name=JSON, e.g. block_size=32", check=_wrong_args
    )


def _facts(_options: VllmOptions) -> Facts:
    return Facts(provides={SAMPLED_LOGPROBS, TOP_LOGPROBS})


VLLM: Final = EngineSpec(
    name="vllm",
    summary="vLLM (AsyncLLM) in processes of its own; weights replaced in place",
    api=1,
    factory="molt_plugin_vllm.engine:VllmEngine",
    options=VllmOptions,
    facts=_facts,
)
