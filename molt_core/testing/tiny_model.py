"""A language model of 0.1 M parameters, made in a second, for tests of engines and trainers.

Random weights, large enough that the distributions are far from uniform, tied embeddings, a tokenizer, and
a generation_config.json that would ruin sampling if anyone obeyed it. Needs torch and
transformers, which are imported when a model is made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from molt_core.api.engine import Weights
from molt_core.experience.segment import FloatArray, IntArray

if TYPE_CHECKING:
    import torch

VOCAB_SIZE: Final = 512
END_TOKEN_ID: Final = 511
"""Ends a reply in tests. The model's own config names another one, 7."""
HOSTILE_GENERATION_CONFIG: Final[dict[str, Any]] = {
    "do_sample": True, "temperature": 0.1, "top_k": 1, "top_p": 0.1, "min_p": 0.9, "repetition_penalty": 5.0,
    "max_new_tokens": 2, "eos_token_id": [7, 8, 9],
}  # fmt: skip


class TinyModel:
    """The model on disk, as version 0, and the log-probs of any version by transformers in float32."""

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        import torch
        import transformers

        self.folder = folder
        config = transformers.Qwen3Config(
            vocab_size=VOCAB_SIZE, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=32, intermediate_size=128, max_position_embeddings=1024,
            tie_word_embeddings=True, bos_token_id=1, eos_token_id=7, pad_token_id=0,
        )  # fmt: skip
        self._model = transformers.Qwen3ForCausalLM(config).eval()
        self._base = self._noisy({name: torch.zeros_like(p) for name, p in self._parameters()}, seed, 0.2)
        self._model.load_state_dict(self._base, strict=False)
        self._model.save_pretrained(folder)
        self.tokenizer = _tokenizer()
        self.tokenizer.save_pretrained(folder)
        (folder / "generation_config.json").write_text(json.dumps(HOSTILE_GENERATION_CONFIG))
        self._version = 0

    def next_version(self) -> int:
        """A version that was not used yet."""
        self._version += 1
        return self._version

    def weights(self, version: int) -> Weights:
        """The weights file of a version, like a trainer publishes it; versions differ clearly."""
        from safetensors.torch import save_file

        path = self.folder.parent / f"version_{version}.safetensors"
        tensors = self.tensors(version)
        save_file(tensors, path)
        return Weights(version=version, path=path, num_bytes=path.stat().st_size)

    def tensors(self, version: int) -> dict[str, torch.Tensor]:
        """Names as transformers has them, float32; the head is left out, as it is tied."""
        return self._noisy(self._base, 1000 + version, 0.05) if version else dict(self._base)

    def logprobs(self, version: int, token_ids: IntArray, temperature: float) -> FloatArray:
        """[T, vocabulary] float32: row t is log softmax(logits / temperature) after tokens 0 … t."""
        import torch

        self._model.load_state_dict(self.tensors(version), strict=False)
        with torch.no_grad():
            logits = self._model(
                input_ids=torch.tensor(np.asarray(token_ids)[None], dtype=torch.long)
            ).logits[0]
        return (logits.float() / (temperature or 1.0)).log_softmax(-1).numpy()  # type: ignore[no-any-return]

    def _parameters(self) -> list[tuple[str, torch.Tensor]]:
        return list(self._model.named_parameters())

    @staticmethod
    def _noisy(base: dict[str, torch.Tensor], seed: int, scale: float) -> dict[str, torch.Tensor]:
        import torch

        generator = torch.Generator().manual_seed(seed)
        noise = {name: torch.randn(value.shape, generator=generator) for name, value in base.items()}
        return {
            # gains of norms stay around 1
            name: (value + scale * noise[name] + (1.0 if value.ndim == 1 and not value.any() else 0.0))
            for name, value in base.items()
        }


def _tokenizer() -> Any:
    """256 bytes, 255 pairs of the letters a to p, and the end token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    merges = [(a, b) for a in "abcdefghijklmnop" for b in "abcdefghijklmnop"][: VOCAB_SIZE - 257]
    texts = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    tokenizer = Tokenizer(models.BPE({text: number for number, text in enumerate(texts)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
