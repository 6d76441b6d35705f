"""Models that would be trained wrongly are refused with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from molt_plugin_fsdp.model import check_attention, load_model
from safetensors.torch import load_file, save_file
from tiny_trainer import save_model

from molt_core.errors import RunError


def changed(source: Path, folder: Path, **settings: Any) -> Path:
    """A copy of a model whose config.json has other values."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    return folder


def test_a_checkpoint_without_all_weights_is_refused(qwen3_folder: Path, tmp_path: Path) -> None:
    folder = changed(qwen3_folder, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError, match=r"1 weights are missing .* model.layers.1.mlp.up_proj.weight"):
        load_model(str(folder))


@pytest.mark.parametrize("key", ["final_logit_softcapping", "logit_scale", "logits_scaling"])
def test_a_model_that_changes_its_logits_is_refused(qwen3_folder: Path, tmp_path: Path, key: str) -> None:
    with pytest.raises(RunError, match=f"{key} changes the logits"):
        load_model(str(changed(qwen3_folder, tmp_path / "model", **{key: 30.0})))


def test_dropout_is_off(tmp_path: Path) -> None:
    model = load_model(str(save_model(tmp_path, attention_dropout=0.3)))
    assert {layer.self_attn.attention_dropout for layer in model.model.layers} == {0.0}


def test_shared_prompts_are_refused_where_layers_see_less_than_a_sequence(tmp_path: Path) -> None:
    windows = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}
    model = load_model(str(save_model(tmp_path, **windows)))
    with pytest.raises(RunError, match="see 16 tokens back .* --trainer.share-prompts false"):
        check_attention(model, max_length=64, share_prompts=True)
    check_attention(model, max_length=64, share_prompts=False)
    check_attention(model, max_length=16, share_prompts=True)


def test_layers_that_are_no_attention_are_refused(qwen3_folder: Path) -> None:
    model = load_model(str(qwen3_folder))
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(RunError, match="layers of kind linear_attention"):
        check_attention(model, max_length=64, share_prompts=False)
