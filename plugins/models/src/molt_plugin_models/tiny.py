"""A model of 0.15M random parameters with its own tokenizer, made from nothing in about a second.

Out: a folder like any Hugging Face checkpoint, equal bit by bit whenever it is made with the same
versions of torch and tokenizers. It knows nothing; it exists so that a run of the whole real
stack fits in a minute. The vocabulary is small because with tens of thousands of tokens a random
policy would never meet a reward.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from molt_plugin_models.cache import make_once

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from molt_core.api.options import NoOptions

RECIPE: Final = 1
"""Raise it when anything below changes, so that folders made before are made again."""
VOCABULARY_SIZE: Final = 512
MAX_LENGTH: Final = 1024
ROLES: Final = {"pad_token": "<|endoftext|>", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
"""Special tokens by role; their ids are 0, 1, 2 in this order."""
CHAT_TEMPLATE: Final = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


class Tiny:
    """A `PackagedModel`."""

    def __init__(self, options: NoOptions) -> None:
        pass

    def prepare(self, cache: Path) -> Path:
        return make_once(cache / "models" / "tiny", f"recipe {RECIPE}", make_tiny)


def make_tiny(folder: Path, *, seed: int = 0) -> None:
    """Write config, random float32 weights and tokenizer into an empty folder."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = train_tokenizer()
    config = Qwen3Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=128,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)


def train_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE over the text in corpus.txt; every digit is a token of its own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(ROLES.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    corpus = resources.files(__package__).joinpath("corpus.txt").read_text("utf-8")
    bpe.train_from_iterator(corpus.splitlines(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        **ROLES,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
    )
