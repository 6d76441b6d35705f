"""Exact state for going on later: weights, moments and the number of steps, on any number of ranks.

In and out: a folder of safetensors files with the shards of each rank, written and read by
torch.distributed.checkpoint, and `trainer.json` with the progress. No pickle is written or read. Whether a
folder is complete is also its owner's to know, by a manifest; `trainer.json` is written last and lists the files.

There is no state of random generators: nothing in this trainer is random.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from attrs import asdict
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException

from molt_core.errors import RunError
from molt_plugin_fsdp.progress import Progress

SCHEMA: Final = 2
INDEX: Final = "trainer.json"
MAX_FILE_BYTES: Final = 2**27
"""The writer holds two copies of a file in memory, so one file for everything would triple a rank's memory."""


def save_state(folder: Path, tensors: Mapping[str, Tensor], progress: Progress) -> None:
    """Write the state into `folder`. Collective. Raises RunError where it can't be written."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = HuggingFaceStorageWriter(str(folder), _file_numbers(tensors), save_distributed=True)
    try:
        dcp.save(dict(tensors), storage_writer=writer)
    except CheckpointException as failure:
        # no Exception: it would pass by everyone who expects a full disk
        causes = "; ".join(str(cause) for cause, _ in failure.failures.values())
        raise RunError(f"trainer state can't be written to {folder}: {causes}", reason="disk") from failure
    dist.barrier()
    if dist.get_rank() == 0:
        files = sorted(path.name for path in folder.glob("*.safetensors"))
        index = {"schema": SCHEMA, "progress": asdict(progress), "files": files}
        (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    dist.barrier()


def _file_numbers(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Number of the file of each tensor, from 1; each rank writes its shards of those with one number to one."""
    numbers, num_bytes = {}, 0
    for name, tensor in tensors.items():
        numbers[name] = 1 + num_bytes // MAX_FILE_BYTES
        num_bytes += tensor.numel() * tensor.element_size() // dist.get_world_size()
    return numbers


def load_state(folder: Path, tensors: Mapping[str, Tensor]) -> Progress:
    """Read the state in `folder` into `tensors`, in place, and return the rest of it. Collective.

    Raises:
        RunError: the folder holds no complete state of this schema, or that of another model.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        schema = index["schema"]
        if schema != SCHEMA:
            raise RunError(f"trainer state in {folder} has schema {schema}, this version reads {SCHEMA}")
        progress, files = Progress(**index["progress"]), index["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"trainer state in {folder} can't be read: {error!r}") from error
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if found != files:
        raise RunError(f"trainer state in {folder} should have the files {files}, found {found}")
    reader = HuggingFaceStorageReader(str(folder))
    saved = {name: tuple(entry.size) for name, entry in reader.read_metadata().state_dict_metadata.items()}
    wanted = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if saved != wanted:
        different = sorted(
            name for name in saved.keys() | wanted.keys() if saved.get(name) != wanted.get(name)
        )
        raise RunError(
            f"trainer state in {folder} is that of another model: {len(different)} tensors differ, first "
            f"{different[0]}, saved {saved.get(different[0])}, wanted {wanted.get(different[0])}"
        )
    dcp.load(dict(tensors), storage_reader=reader)
    return progress
