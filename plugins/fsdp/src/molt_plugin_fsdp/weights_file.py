"""Gathered weights into one safetensors file, a tensor at a time.

In: sharded tensors by name. Out: on rank 0 a file that appears complete or not at all. Collective: every rank
takes part in the gathering, rank 0 writes. Holds one full tensor in memory, never the whole model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

DTYPE_NAMES: Final = {
    torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64",
    torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""torch dtype to its name in a safetensors header."""


def write_weights(path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype, version: int) -> int:
    """Write `tensors` to `path`, floating-point parameters in `dtype`, everything else as it is.

    Returns:
        Bytes of the file, on every rank.
    """
    stored = {
        name: dtype if isinstance(tensor, DTensor) else tensor.dtype for name, tensor in tensors.items()
    }
    header, num_bytes = _header(tensors, stored, version)
    if dist.get_rank() != 0:
        for name, tensor in tensors.items():
            _gather(tensor, stored[name])
        return num_bytes
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(header)
        for name, tensor in tensors.items():
            full = _gather(tensor, stored[name])
            file.write(full.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    os.replace(partial, path)
    return num_bytes


def _header(
    tensors: Mapping[str, Tensor], dtypes: Mapping[str, torch.dtype], version: int
) -> tuple[bytes, int]:
    """The file's first part, and the size of the whole file. Format: safetensors 0.4 and later."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt", "version": str(version)}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * dtypes[name].itemsize
        entries[name] = {
            "dtype": DTYPE_NAMES[dtypes[name]], "shape": list(tensor.shape), "data_offsets": [offset, end],
        }  # fmt: skip
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + offset


def _gather(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The full tensor on the CPU. Cast before it travels: half the bytes in bfloat16."""
    tensor = tensor.detach().to(dtype)
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local() if tensor.device_mesh.size() == 1 else tensor.full_tensor()
    return tensor.cpu()
