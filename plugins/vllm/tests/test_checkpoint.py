from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from molt_plugin_vllm.checkpoint import checkpoint_shapes
from safetensors.numpy import save_file


def test_all_shards_of_an_index_are_read_and_other_files_are_not(tmp_path: Path) -> None:
    save_file({"a": np.zeros(2, np.float32)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": np.zeros(3, np.float32)}, tmp_path / "model-00002-of-00002.safetensors")
    save_file({"a.wq": np.zeros(2, np.float32)}, tmp_path / "consolidated.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert checkpoint_shapes(str(tmp_path)) == {"a": (2,), "b": (3,)}


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no \\*.safetensors"):
        checkpoint_shapes(str(tmp_path))
