"""Engines and trainer of executor `local` load their models on threads of one process."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from molt_plugin_fsdp.model import load_model
from molt_plugin_transformers.model import Model
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM


@pytest.fixture
def tied_model(tmp_path):
    config = Qwen3Config(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.fixture
def eager_threads():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
def test_models_that_load_at_the_same_time_are_whole_and_so_are_those_after_them(tied_model):
    tie_weights = PreTrainedModel.tie_weights

    def load(number):
        if number % 2:
            return load_model(tied_model), torch.float32
        return Model.load(tied_model, "bfloat16").module, torch.bfloat16

    with ThreadPoolExecutor(4) as threads:
        for module, dtype in threads.map(load, range(24)):
            assert module.lm_head.weight is module.model.embed_tokens.weight
            assert module.dtype == dtype
    assert PreTrainedModel.tie_weights is tie_weights
    assert torch.get_default_dtype() == torch.float32
