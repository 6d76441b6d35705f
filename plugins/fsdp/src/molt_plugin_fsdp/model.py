"""From a model folder to a sharded policy, refusing models that this trainer would compute wrongly.

In: a local folder or Hugging Face id. Out: a `Policy` with float32 weights whose decoder layers and root are
FSDP2 units that compute in the compute dtype and reduce gradients in float32. Every rank reads the whole
model before it keeps its shard.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, PreTrainedModel

from molt_core.api.model_loading import MODEL_LOADING
from molt_core.errors import RunError
from molt_plugin_fsdp.policy import Policy

CHANGES_LOGITS: Final = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Config keys of models that scale or cap their logits after the output layer."""


def load_model(source: str) -> PreTrainedModel:
    """A causal language model in float32 on the CPU, with dropout off.

    Raises:
        RunError: weights are missing or don't fit, or the model is of a kind that would be trained wrongly.
    """
    with MODEL_LOADING:
        model, report = AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, attn_implementation="sdpa", output_loading_info=True
        )
    not_loaded = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if not_loaded:
        raise RunError(
            f"model {source}: {len(not_loaded)} weights are missing or of another shape, first {not_loaded[0]}; "
            "they would start random. Give a complete checkpoint"
        )
    changed = [key for key in CHANGES_LOGITS if getattr(model.config, key, None) not in (None, 1, 1.0)]
    if changed:
        raise RunError(
            f"model {source}: {changed[0]} changes the logits, which trainer fsdp does not compute"
        )
    if getattr(model, "_weight_conversions", None):
        raise RunError(
            f"model {source}: its weights are stored under other names than they are computed with "
            "(mixture of experts?); trainer fsdp can't publish those"
        )
    if not isinstance(model.get_output_embeddings(), nn.Linear):
        raise RunError(
            f"model {source}: its output layer is a {type(model.get_output_embeddings()).__name__}; trainer fsdp "
            "computes log-probs of linear ones"
        )
    _turn_dropout_off(model)
    return model


def _turn_dropout_off(model: nn.Module) -> None:
    # dropout would make log-probs differ from the engine's by noise; without it nothing here is random
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0


def check_attention(model: PreTrainedModel, *, max_length: int, share_prompts: bool) -> None:
    """Raises RunError if packing would be wrong for the model's kind of attention."""
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    window = getattr(model.config, "sliding_window", None)
    if window is not None and window >= max_length:
        kinds.discard("sliding_attention")
    if share_prompts and "sliding_attention" in kinds:
        raise RunError(
            f"the model's layers see {window} tokens back and sequences may have {max_length}; shared prompts "
            "would show them more. Set --trainer.share-prompts false"
        )
    unknown = kinds - {"full_attention", "sliding_attention"}
    if unknown:
        raise RunError(
            f"the model has layers of kind {', '.join(sorted(unknown))}; trainer fsdp can't pack those"
        )


def shard(root: nn.Module, mesh: DeviceMesh, dtype: torch.dtype) -> None:
    """Make each decoder layer of `root.model` and the rest of the root an FSDP2 unit on `mesh`, in place."""
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    # with one rank there is no memory to win by dropping the gathered weights between forward and backward
    options: dict[str, Any] = {
        "mesh": mesh, "mp_policy": precision, "reshard_after_forward": mesh.size() > 1,
    }  # fmt: skip
    layers = getattr(root.model.base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise RunError(f"{type(root.model).__name__} has no list `layers` of decoder layers to shard")
    for layer in layers:
        fully_shard(layer, **options)
    fully_shard(root, **options)


def frozen_policy(
    source: str, mesh: DeviceMesh, dtype: torch.dtype, *, temperature: float, logit_rows: int
) -> Policy:
    """A policy that never trains: a reference or a teacher."""
    policy = Policy(load_model(source).eval(), temperature=temperature, logit_rows=logit_rows)
    policy.requires_grad_(False)
    shard(policy, mesh, dtype)
    return policy


def named_tensors(policy: Policy) -> dict[str, Tensor]:
    """What a checkpoint holds, under Hugging Face names; of tied weights the first. Shards are DTensors."""
    model = policy.model
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied = every - {name for name, _ in model.named_parameters()}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
