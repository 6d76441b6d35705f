"""What is wrong with --reference: a folder that is none, tokens of another tokenizer, or nobody who asked for it.

Reads config and tokenizer files, no weights; nothing is downloaded. Of a Hugging Face id the tokenizer is compared
when the model is prepared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from molt_core.api.facts import REFERENCE_MODEL
from molt_core.api.findings import Finding, error, warning
from molt_core.api.plan_view import PlanView
from molt_core.api.tokens import token_difference
from molt_core.plan.model_facts import is_hub_id, model_folder, read_json


def reference_is_usable(view: PlanView) -> Iterator[Finding]:
    """The frozen model exists, shares the policy's tokens and has a use."""
    reference = view.run.reference
    if reference is None:
        return
    said = view.source("reference")
    if REFERENCE_MODEL not in view.facts:
        message = "reference is given, but nothing in this run compares the policy with a frozen model"
        fix = "--loss.kl-coef 0.001, --estimator on_policy_distill, or leave --reference out"
        yield warning("M315", message, said, fix=fix)
    folder = model_folder(reference)
    if not os.path.isdir(folder):
        if not is_hub_id(reference):
            message = (
                f"--reference {reference} is neither a folder nor the id of a model on the Hugging Face hub"
            )
            yield error(
                "M408", message, said, fix="--reference FOLDER: a model, a run or one of its checkpoints"
            )
        return
    if not read_json(folder / "config.json"):
        message = f"--reference {folder} has no readable config.json, so it is no Hugging Face model"
        yield error("M408", message, said, fix="--reference FOLDER: a model, a run or one of its checkpoints")
    model = model_folder(view.run.model)
    if os.path.isdir(model) and not same_tokens(model, folder):
        yield error("M409", different_tokens(model, folder), view.source("model"), said, fix=SAME_TOKENIZER)


SAME_TOKENIZER = "a reference of the same family, which has the same tokenizer"


def different_tokens(model: Path, reference: Path) -> str:
    why = token_difference(model, reference)
    return f"log-probs of {model} and of --reference {reference} can't be compared: {why}"


def same_tokens(model: Path, reference: Path) -> bool:
    """Whether each token of the model is the same token of the reference, as far as their files say."""
    return not token_difference(model, reference)
