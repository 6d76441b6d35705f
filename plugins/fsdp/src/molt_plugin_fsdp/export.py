"""A Hugging Face folder from the trained model: what transformers and vLLM load.

In: the folder that the model came from, and the sharded weights. Out: config.json with the dtype of the
stored weights, model.safetensors, and the source's tokenizer, chat template and generation config, byte for
byte. Collective: every rank takes part in the gathering, rank 0 writes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from molt_plugin_fsdp.weights_file import write_weights

COPIED: Final = ("*.json", "*.jinja", "*.txt", "*.model", "*.py")
"""Beside the weights: tokenizer, template, generation config, and code of models that bring their own."""
OF_THE_FOLDER: Final = ("manifest.json", "loop.json")
"""Describe the folder that they lie in, a model cache or a checkpoint, not the model."""


def export_model(folder: Path, source: str, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Write the model into `folder`, which may exist."""
    folder.mkdir(parents=True, exist_ok=True)
    if dist.get_rank() == 0:
        origin = _local_folder(source)
        for pattern in COPIED:
            for path in origin.glob(pattern):
                if path.name not in OF_THE_FOLDER and not path.name.endswith(".index.json"):
                    shutil.copyfile(path, folder / path.name)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config.pop("torch_dtype", None)
        config["dtype"] = str(dtype).removeprefix("torch.")
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_weights(folder / "model.safetensors", tensors, dtype, version=0)


def _local_folder(source: str) -> Path:
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download  # the model came from there, so it is installed

    return Path(snapshot_download(source, allow_patterns=list(COPIED)))
