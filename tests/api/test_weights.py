from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from molt_core.api.weights import MAX_NAMES_SHOWN, check_coverage, tensor_shapes


def test_shapes_are_read_from_the_header(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(
        {"a": np.zeros((2, 3), np.float32), "b": np.zeros((), np.float32)}, path, metadata={"version": "1"}
    )
    assert tensor_shapes(path) == {"a": (2, 3), "b": ()}


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"a": np.zeros((2, 3), np.float32)}, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="not written completely"):
        tensor_shapes(path)


@pytest.mark.parametrize("content", [b"", b"abc", b"\x02" + 7 * b"\x00" + b"[]", b"\xff" * 64])
def test_bytes_that_are_no_safetensors_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"weights\.safetensors"):
        tensor_shapes(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing\.safetensors can't be read"):
        tensor_shapes(tmp_path / "nothing.safetensors")


def test_all_that_does_not_fit_is_listed_at_once() -> None:
    with pytest.raises(ValueError, match="3 published tensors") as raised:
        check_coverage({"a": (2,), "b": (3,), "c": (4,)}, {"b": (3, 1), "c": (4,), "d": (5,)})
    assert str(raised.value) == (
        "the 3 published tensors don't fit the 3 of the engine's model; "
        "1 missing: a; 1 unknown: d; 1 of another shape: b [3, 1] (wanted [3])"
    )


def test_the_second_of_a_tied_pair_may_be_there_or_not() -> None:
    check_coverage({"embed": (2,)}, {"embed": (2,)}, optional=["head"])
    check_coverage({"embed": (2,)}, {"embed": (2,), "head": (2,)}, optional=["head"])
    check_coverage({"embed": (2,), "head": (2,)}, {"embed": (2,)}, optional=["head"])


def test_a_long_list_is_cut() -> None:
    names = {f"t{number}": (1,) for number in range(MAX_NAMES_SHOWN + 3)}
    with pytest.raises(ValueError, match="and 3 more"):
        check_coverage(names, {})
