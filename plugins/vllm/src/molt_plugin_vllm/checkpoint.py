"""Names and shapes of the checkpoint that an engine started from.

vLLM refuses to start when a checkpoint leaves one of its parameters unset. A published file
with exactly the same tensors therefore reaches every parameter too, whatever names and fused
layouts vLLM has inside.
"""

from __future__ import annotations

import json
from pathlib import Path

from molt_core.api.weights import Shape, tensor_shapes


def checkpoint_shapes(model_folder: str) -> dict[str, Shape]:
    """Names and shapes of all tensors of a local checkpoint, or of a Hugging Face id that was downloaded.

    Raises:
        ValueError: it has no safetensors files.
    """
    folder = Path(model_folder)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        folder = Path(
            snapshot_download(model_folder, local_files_only=True, allow_patterns=["*.safetensors*"])
        )
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = sorted({folder / name for name in json.loads(index.read_text())["weight_map"].values()})
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} has no *.safetensors; weight updates are checked against their headers")
    return {name: shape for file in files for name, shape in tensor_shapes(file).items()}
