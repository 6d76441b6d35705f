from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

MakeModel = Callable[..., str]


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Makes a folder with a byte-level tokenizer and a chat template."""

    def make(chat_template: str | None, specials: Sequence[str] = ("<|im_start|>",)) -> str:
        texts = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE({text: number for number, text in enumerate(texts)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|im_end|>", *specials])
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
        fast.chat_template = chat_template
        fast.save_pretrained(tmp_path / "model")
        return str(tmp_path / "model")

    return make
