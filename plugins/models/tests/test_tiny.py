"""The tiny model: the same bits every time, and a tokenizer that can say anything."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_models.tiny import make_tiny, train_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    make_tiny(made)
    return made


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(folder)


def checksums(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_another_process_makes_the_same_bits(folder: Path, tmp_path: Path) -> None:
    code = "import sys, pathlib, molt_plugin_models.tiny as t; t.make_tiny(pathlib.Path(sys.argv[1]))"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120, env=environment)
    assert checksums(tmp_path) == checksums(folder)


def test_another_seed_changes_the_weights_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    make_tiny(tmp_path, seed=1)
    one, other = checksums(folder), checksums(tmp_path)
    assert {name for name in one if one[name] != other[name]} == {"model.safetensors"}


def test_making_it_leaves_the_caller_s_random_state_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make_tiny(tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_it_has_about_150_thousand_parameters_and_starts_near_uniform(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert 140_000 < sum(parameter.numel() for parameter in model.parameters()) < 160_000
    with torch.no_grad():
        logprobs = model(torch.tensor([[1, 20, 30, 2]])).logits.log_softmax(-1)
    assert logprobs.exp().max() < 10 / 512


def test_config_and_tokenizer_agree_on_the_special_tokens(
    folder: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert len(tokenizer) == config["vocab_size"] == 512
    assert tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) == [0, 1, 2]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert (config["pad_token_id"], config["bos_token_id"], config["eos_token_id"]) == (0, 1, 2)
    assert config["max_position_embeddings"] == tokenizer.model_max_length == 1024
    assert not (folder / "generation_config.json").exists()


def test_the_chat_template_writes_chatml(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = [
        {"role": "system", "content": "Be short.\n"},
        {"role": "user", "content": "What is 2+3?"},
        {"role": "assistant", "content": "5"},
        {"role": "user", "content": "And 4+4?"},
    ]
    text = (
        "<|im_start|>system\nBe short.\n<|im_end|>\n<|im_start|>user\nWhat is 2+3?<|im_end|>\n"
        "<|im_start|>assistant\n5<|im_end|>\n<|im_start|>user\nAnd 4+4?<|im_end|>\n"
    )
    assert tokenizer.apply_chat_template(messages, tokenize=False) == text
    with_prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert with_prompt == text + "<|im_start|>assistant\n"


def test_every_digit_is_a_token_of_its_own(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.tokenize("120+7") == ["1", "2", "0", "+", "7"]
    assert tokenizer.tokenize("= 12") == ["=", "Ġ", "1", "2"]


TOKENIZER = train_tokenizer()


@given(st.text())
def test_any_text_survives_encoding_and_decoding(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False)) == text
