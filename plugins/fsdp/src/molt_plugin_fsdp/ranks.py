"""The process group of the trainer's ranks, and the few sums they share.

In: rank, world size and where to meet. Out: a device mesh, and numbers that are equal on all ranks. Gradients
and weights travel through FSDP, not through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from molt_core.api.trainer import TrainerContext


def join(context: TrainerContext, timeout_s: float) -> DeviceMesh:
    """Meet the other ranks; a single rank meets nobody and needs no port.

    Raises:
        torch.distributed.DistError: not all ranks came within the timeout.
    """
    on_cuda = torch.cuda.is_available()
    if on_cuda:
        torch.cuda.set_device(context.rank % torch.cuda.device_count())
    alone = context.world_size == 1
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_cuda else "gloo",
        init_method=None if alone else context.rendezvous,
        store=dist.HashStore() if alone else None,
        rank=context.rank,
        world_size=context.world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    return init_device_mesh("cuda" if on_cuda else "cpu", (context.world_size,), mesh_dim_names=("dp",))


def leave() -> None:
    """Close the process group. May be called when there is none."""
    if dist.is_initialized():
        dist.destroy_process_group()


def most_and_total(most: int, total: int) -> tuple[int, int]:
    """The maximum of the first and the sum of the second number over all ranks."""
    mine = torch.tensor([most, total])
    all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_ranks, mine)
    table = torch.stack(all_ranks)
    return int(table[:, 0].max()), int(table[:, 1].sum())


def summed(values: Mapping[str, Tensor]) -> dict[str, float]:
    """Sums over all ranks. Every rank must bring the same names."""
    names = sorted(values)
    vector = torch.stack([values[name].double().cpu() for name in names])
    dist.all_reduce(vector)
    return dict(zip(names, vector.tolist(), strict=True))
