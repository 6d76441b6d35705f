"""From `--model` to a local folder, and what the run has to know about it.

A packaged model is made by its package in a process of its own, so that the driver never
imports torch; a Hugging Face id is downloaded into the hub's own cache. Does not load weights.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from attrs import frozen

from molt_core.errors import PreflightError
from molt_core.plan.model_facts import model_folder, run_max_length
from molt_core.plan.plan import Plan
from molt_core.plan.reference import SAME_TOKENIZER, different_tokens, same_tokens


@frozen(kw_only=True)
class PreparedModel:
    folder: Path
    max_length: int
    """Most tokens of prompt and reply together in this run."""
    end_token_ids: tuple[int, ...]
    """Tokens that end a reply."""
    reference_folder: str = ""
    """Of the frozen reference that --reference names; empty: the model itself."""


def prepare_model(plan: Plan) -> PreparedModel:
    """Make sure that the model is on disk. Takes a while at the first use of a packaged model.

    Raises:
        PreflightError: it or the reference can't be made, downloaded or read, or they have different tokens.
    """
    run = plan.run_options()
    folder = _folder(plan, run.model)
    config = _json(folder / "config.json")
    text_config = config.get("text_config", config)
    reference = _reference_folder(run.reference)
    if reference and not same_tokens(folder, Path(reference)):
        raise PreflightError(f"{different_tokens(folder, Path(reference))}; give {SAME_TOKENIZER}")
    return PreparedModel(
        folder=folder,
        max_length=run_max_length(run, text_config.get("max_position_embeddings")),
        end_token_ids=end_token_ids(folder),
        reference_folder=reference,
    )


def _reference_folder(reference: str | None) -> str:
    if reference is None:
        return ""
    local = model_folder(reference)
    return str(local.resolve() if local.is_dir() else _from_hub(reference, "--reference"))


def _folder(plan: Plan, model: str) -> Path:
    if plan.model["source"] == "folder":
        return model_folder(model).resolve()
    if plan.model["source"] == "packaged":
        return _packaged(plan)
    return _from_hub(model, "--model")


def _from_hub(model: str, flag: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                model, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
            )
        )
    # the hub's errors have no common class; whichever it is, the user needs the id and the cause
    except Exception as error:
        raise PreflightError(
            f"{flag} {model}: could not be downloaded from the Hugging Face hub: {error}"
        ) from error


def _packaged(plan: Plan) -> Path:
    part = plan.one("models")
    command = [sys.executable, "-m", "molt_core.launch.model_process"]
    done = subprocess.run(command, input=plan.to_json(), capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode != 0:
        raise PreflightError(
            f"--model {part.name} could not be made by {part.dist} {part.version}:\n{done.stderr.strip()}"
        )
    return Path(done.stdout.strip().splitlines()[-1])


def end_token_ids(folder: Path) -> tuple[int, ...]:
    """End-of-sequence ids of config, generation_config and tokenizer, sorted.

    They may differ: chat models often end a turn with a token that config.json does not name.

    Raises:
        PreflightError: none of the three names one; every reply would run into the length limit.
    """
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        ids = _json(folder / name).get("eos_token_id")
        found.update([ids] if isinstance(ids, int) else ids or [])
    eos = _json(folder / "tokenizer_config.json").get("eos_token")
    eos_text = eos.get("content") if isinstance(eos, dict) else eos
    added = _json(folder / "tokenizer.json").get("added_tokens", [])
    found.update(token["id"] for token in added if token["content"] == eos_text)
    if not found:
        raise PreflightError(
            f"{folder}: neither config.json, generation_config.json nor the tokenizer names an end-of-sequence token"
        )
    return tuple(sorted(found))


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
