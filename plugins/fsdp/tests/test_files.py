"""Published weights, checkpoints and exports: what is in them, and what reading a broken one says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from molt_plugin_fsdp import checkpoint
from safetensors import safe_open
from safetensors.torch import load_file
from tiny_trainer import assert_equal_weights, plain_model, published, started, train_batch, window_items
from transformers import AutoModelForCausalLM

from molt_core.api.weights import tensor_shapes
from molt_core.errors import RunError

STEPS = [train_batch(window_items(seed)) for seed in range(4)]


def test_published_weights_are_those_of_the_model_under_hugging_face_names(
    model_folder: Path, tmp_path: Path
) -> None:
    with started(model_folder) as made:
        weights = made.publish(3, tmp_path)
    assert weights is not None
    wanted = {name: param.detach() for name, param in plain_model(model_folder).named_parameters()}
    assert_equal_weights(load_file(weights.path), wanted, atol=0)
    assert tensor_shapes(weights.path) == {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    assert weights.num_bytes == weights.path.stat().st_size
    with safe_open(weights.path, "pt") as file:
        assert file.metadata() == {"format": "pt", "version": "3"}


def test_tied_weights_are_published_once(qwen3_folder: Path, tmp_path: Path) -> None:
    with started(qwen3_folder) as made:
        names = published(made, tmp_path).keys()
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names


def test_weights_are_published_in_the_compute_dtype(qwen3_folder: Path, tmp_path: Path) -> None:
    with started(qwen3_folder, dtype="bfloat16") as made:
        tensors = published(made, tmp_path)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    wanted = plain_model(qwen3_folder).model.norm.weight.detach().bfloat16()
    torch.testing.assert_close(tensors["model.norm.weight"], wanted, rtol=0, atol=0)


def test_a_new_version_leaves_the_file_that_a_reader_has_open(qwen3_folder: Path, tmp_path: Path) -> None:
    with started(qwen3_folder) as made:
        first = published(made, tmp_path, version=1)
        path = tmp_path / "weights.safetensors"
        with safe_open(path, "pt") as reader:
            made.step(STEPS[0])
            second = published(made, tmp_path, version=2)
            name = "model.norm.weight"
            torch.testing.assert_close(reader.get_tensor(name), first[name], rtol=0, atol=0)
    assert not torch.equal(first[name], second[name])
    assert [entry.name for entry in tmp_path.iterdir()] == ["weights.safetensors"]


def test_saving_and_loading_goes_on_bitwise(model_folder: Path, tmp_path: Path) -> None:
    with started(model_folder, warmup_steps=3) as made:
        straight = [made.step(batch) for batch in STEPS]
        wanted = published(made, tmp_path)
    with started(model_folder, warmup_steps=3) as made:
        for batch in STEPS[:2]:
            made.step(batch)
        made.save(tmp_path / "state")
    with started(model_folder, warmup_steps=3) as made:
        made.load(tmp_path / "state")
        assert [made.step(batch) for batch in STEPS[2:]] == straight[2:]
        assert_equal_weights(published(made, tmp_path), wanted, atol=0)


def test_a_state_in_several_files_is_read_whole(
    qwen3_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MAX_FILE_BYTES", 2**14)
    with started(qwen3_folder) as made:
        made.step(STEPS[0])
        made.save(tmp_path / "state")
        wanted = made.step(STEPS[1])
        made.load(tmp_path / "state")
        assert made.step(STEPS[1]) == wanted
    files = sorted((tmp_path / "state").glob("*.safetensors"))
    assert len(files) > 2
    files[1].unlink()
    with started(qwen3_folder) as made, pytest.raises(RunError, match="should have the files"):
        made.load(tmp_path / "state")


def test_a_state_saved_before_the_first_step_is_a_fresh_start(qwen3_folder: Path, tmp_path: Path) -> None:
    with started(qwen3_folder) as made:
        made.save(tmp_path / "state")
        wanted = made.step(STEPS[0])
        made.load(tmp_path / "state")
        assert made.step(STEPS[0]) == wanted


def test_a_broken_state_says_what_is_wrong(qwen3_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with started(qwen3_folder) as made:
        with pytest.raises(RunError, match=r"can't be read: FileNotFoundError"):
            made.load(folder)
        made.save(folder)
        index = folder / "trainer.json"
        complete = json.loads(index.read_text())
        index.write_text(json.dumps(complete | {"schema": 99}))
        with pytest.raises(RunError, match="has schema 99, this version reads 2"):
            made.load(folder)
        index.write_text(json.dumps(complete | {"files": ["shard-00002.safetensors"]}))
        with pytest.raises(RunError, match="should have the files"):
            made.load(folder)


def test_the_state_of_another_model_is_refused(
    qwen3_folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tiny_trainer import save_model

    with started(save_model(tmp_path_factory.mktemp("deeper"), num_hidden_layers=3)) as made:
        made.save(tmp_path)
    with started(qwen3_folder) as made, pytest.raises(RunError, match="another model: 33 tensors differ"):
        made.load(tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_export_loads_in_transformers_with_equal_logits(
    model_folder: Path, tmp_path: Path, dtype: str
) -> None:
    with started(model_folder, dtype=dtype) as made:
        made.step(STEPS[0])
        weights = published(made, tmp_path / "weights")
        made.export(tmp_path / "export")
    wanted_dtype = getattr(torch, dtype)
    model, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "export", dtype="auto", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.dtype == wanted_dtype
    expected = plain_model(model_folder, wanted_dtype)
    expected.load_state_dict(weights, strict=False)  # not strict: the second of two tied weights is not there
    ids = torch.arange(3, 20)[None]
    torch.testing.assert_close(model(ids).logits, expected(ids).logits, rtol=0, atol=0)


def test_an_export_leaves_out_what_describes_the_folder_of_its_source(
    qwen3_folder: Path, tmp_path: Path
) -> None:
    source = shutil.copytree(qwen3_folder, tmp_path / "source")
    (source / "manifest.json").write_text("{}")
    with started(source, dtype="bfloat16") as made:
        made.export(tmp_path / "export")
    assert not (tmp_path / "export" / "manifest.json").exists()


def test_an_export_has_the_tokenizer_and_generation_config_of_its_source(
    qwen3_folder: Path, tmp_path: Path
) -> None:
    with started(qwen3_folder, dtype="bfloat16") as made:
        made.export(tmp_path)
    for name in ("tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / name).read_bytes() == (qwen3_folder / name).read_bytes()
    config = json.loads((tmp_path / "config.json").read_text())
    source = json.loads((qwen3_folder / "config.json").read_text())
    assert config == source | {"dtype": "bfloat16"}
