"""A causal language model of transformers: loading it, what it is made of, and new weights for it."""

from __future__ import annotations

from pathlib import Path

import torch
from attrs import frozen
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from molt_core.api.model_loading import MODEL_LOADING
from molt_core.api.weights import Shape


@frozen(kw_only=True)
class Model:
    module: PreTrainedModel
    shapes: dict[str, Shape]
    """Of all tensors that a weights file must hold."""
    tied: tuple[str, ...]
    """Names of tensors that are another one too; a file may leave them out."""
    vocabulary_size: int

    @classmethod
    def load(cls, folder: str, dtype: str) -> Model:
        """In evaluation mode, on the current CUDA device if there is one.

        Raises:
            OSError: no such model.
            ValueError: it is of a kind that this engine can't decode.
        """
        disable_progress_bar()
        with MODEL_LOADING:
            module = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        if module._is_stateful:
            raise ValueError(
                f"{type(module).__name__} keeps a recurrent state; only KV caches are understood"
            )
        module = module.to("cuda" if torch.cuda.is_available() else "cpu").eval().requires_grad_(False)
        shapes: dict[str, Shape] = {}
        tied: list[str] = []
        addresses: set[int] = set()
        for name, tensor in module.state_dict().items():
            if tensor.data_ptr() in addresses:
                tied.append(name)
            else:
                shapes[name] = tuple(tensor.shape)
            addresses.add(tensor.data_ptr())
        vocabulary_size = module.get_input_embeddings().weight.shape[0]
        return cls(module=module, shapes=shapes, tied=tuple(tied), vocabulary_size=vocabulary_size)

    @torch.no_grad()
    def replace_weights(self, path: Path) -> None:
        """Copy the tensors of a checked file into the model, converted to its dtype."""
        own = self.module.state_dict()
        for name, tensor in load_file(path).items():
            own[name].copy_(tensor)
