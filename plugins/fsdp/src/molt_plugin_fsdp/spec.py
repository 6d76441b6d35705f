"""Spec and options of the trainer `fsdp`. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from molt_core.api.facts import CRITIC, SAMPLED_LOGPROBS, Facts
from molt_core.api.findings import Finding, error
from molt_core.api.options import option, options
from molt_core.api.spec import TrainerSpec
from molt_core.api.tokens import token_difference

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")


@options
class FsdpOptions:
    tokens_per_micro_batch: int = option(
        2048, help="input tokens that are packed into one forward pass; a longer segment goes alone", ge=1
    )
    share_prompts: bool = option(
        True, help="compute a prompt once for all its replies that fit into one micro-batch; same gradients"
    )
    logit_rows: int = option(
        256, help="sampled tokens whose logits are in memory at a time, in float32", ge=1
    )
    gradient_checkpointing: bool = option(
        False, help="recompute each layer in the backward pass: less memory, about a third more time"
    )
    max_grad_norm: float = option(1.0, help="gradients are scaled down to this global norm", gt=0)
    warmup_steps: int = option(0, help="steps in which the learning rate rises linearly to --lr", ge=0)
    beta1: float = option(0.9, help="AdamW: decay of the mean of gradients", ge=0, lt=1)
    beta2: float = option(0.95, help="AdamW: decay of the mean of squared gradients", ge=0, lt=1)
    eps: float = option(1e-8, help="AdamW: added to the root of the mean square", gt=0)
    weight_decay: float = option(0.0, help="AdamW: decoupled weight decay", ge=0)
    critic_model: str = option(
        "", help="model that the critic starts from, for estimators with one; default: that of the policy"
    )
    critic_lr: float = option(5e-6, help="learning rate of the critic", gt=0)
    critic_epochs: int = option(1, help="passes of the critic over one batch, an optimizer step each", ge=1)
    critic_value_clip: float = option(
        0.2, help="how far the passes after the first may move a value from where it was before them", gt=0
    )
    critic_warmup_steps: int = option(
        0, help="first steps in which the critic alone learns and the policy stays as it is", ge=0
    )
    collective_timeout_s: float = option(
        1800.0, help="seconds after which a rank gives up waiting for the others", gt=0
    )


def critic_has_a_use(view: PlanView) -> Iterator[Finding]:
    """Options of a critic are for estimators that have one, and its model must be there."""
    given = [name for name in view.origins if name.startswith("trainer.critic_")]
    if given and CRITIC not in view.facts:
        message = f"{given[0]} is given, but no critic is trained: the estimator has none"
        yield Finding("warning", "FSDP1", message, tuple(map(view.source, given)), "--estimator gae")
    (part,) = view.parts["trainers"]
    if CRITIC in view.facts and part.options.critic_epochs == 1 and "trainer.critic_value_clip" in given:
        message = "critic_value_clip bounds what further passes change, and the critic makes one"
        sources = (view.source("trainer.critic_value_clip"), view.source("trainer.critic_epochs"))
        yield Finding("warning", "FSDP4", message, sources, "--trainer.critic-epochs 2")
    model: str = part.options.critic_model
    said = view.source("trainer.critic_model")
    if model and not os.path.isdir(model) and not _HUB_ID.fullmatch(model):
        message = f"critic_model {model} is neither a folder nor the id of a model"
        yield error("FSDP2", message, said, fix="--trainer.critic-model FOLDER")
    if os.path.isdir(model) and os.path.isdir(view.run.model):
        why = token_difference(Path(view.run.model), Path(model))
        if why:
            message = f"the critic {model} would read the policy's tokens as others: {why}"
            fix = "a critic model of the same family, or leave --trainer.critic-model out"
            yield error("FSDP3", message, view.source("model"), said, fix=fix)


FSDP: Final = TrainerSpec(
    name="fsdp",
    summary="PyTorch FSDP2 with float32 master weights and AdamW, for models of transformers",
    api=1,
    factory="molt_plugin_fsdp.trainer:FsdpTrainer",
    options=FsdpOptions,
    facts=lambda _options: Facts(needs={SAMPLED_LOGPROBS}),
    rules=(critic_has_a_use,),
)
