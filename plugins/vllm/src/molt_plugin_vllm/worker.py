"""Imported in vLLM's worker processes: the weight-transfer backend `molt-shm`, and a watch on the parent.

vLLM imports this module through `worker_extension_cls` before it loads the model. In: the
path of a safetensors file, in the update info. Out: the model holds its tensors. What the file
must hold is checked by the engine before it gets here.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import wait
from typing import Any, Final

import torch
from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

BACKEND: Final = "molt-shm"


@dataclass
class NoInfo(WeightTransferInitInfo):
    """Nothing to agree on beforehand."""


@dataclass
class FileInfo(WeightTransferUpdateInfo):
    path: str


class SharedMemoryTransfer(WeightTransferEngine[NoInfo, FileInfo]):
    """Loads a whole model from a file that the trainer wrote, normally to shared memory."""

    init_info_cls = NoInfo
    update_info_cls = FileInfo

    def init_transfer_engine(self, init_info: NoInfo) -> None:
        pass

    def start_weight_update(self) -> None:
        if self.device.type == "cpu":
            _unset_moe_kernels(self.model)
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # overridden: vLLM 0.32 synchronizes an accelerator here, which a CPU does not have
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FileInfo) -> None:
        with torch.no_grad():
            self.model.load_weights(iter(load_file(update_info.path).items()))

    def finish_weight_update(self) -> None:
        untouched = _untouched(self.model)
        if untouched:
            raise RuntimeError(f"these parts of the model got no weights: {', '.join(untouched)}")
        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu":
            _repack_tied_heads(self.model)

    def shutdown(self) -> None:
        pass


def _untouched(model: torch.nn.Module) -> list[str]:
    """Names of modules with weights of their own that the running reload has not touched.

    vLLM would only warn and put the old values back. A head that shares the embedding's weight
    has none of its own.
    """
    names = []
    for name, module in model.named_modules():
        info = get_layerwise_info(module)
        weighted = info.can_load() and any(True for _ in module.parameters(recurse=False))
        if weighted and info.load_numel == 0 and not isinstance(module, ParallelLMHead):
            names.append(name)
    return names


def _repack_tied_heads(model: torch.nn.Module) -> None:
    """vLLM 0.32.0 on CPU: a tied lm_head computes with a packed copy of the embedding that a reload
    does not renew, so that its logits would stay those of the old weights (0.08 in log-prob)."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    for module in model.modules():
        packed = isinstance(module, ParallelLMHead) and getattr(module, "cpu_linear", None) is not None
        if packed and module.weight.numel():
            dispatch_cpu_unquantized_gemm(module, remove_weight=False)


def _unset_moe_kernels(model: torch.nn.Module) -> None:
    """vLLM 0.32.0 on CPU: with a kernel in place a reload copies experts into its packed buffers
    without packing them (0.29 in log-prob). Without one the first-load path packs them."""
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


class WorkerExtension:
    """What vLLM is told to mix into its worker; importing this module is all it is for."""


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, SharedMemoryTransfer)


def _die_with(parent_sentinel: int) -> None:
    wait([parent_sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


# EngineCore does not notice that the process it works for was killed, and would keep its memory
# for ever. The sentinel becomes readable when the parent is gone, however it went.
_parent = parent_process()
if _parent is not None:
    threading.Thread(
        target=_die_with, args=(_parent.sentinel,), name="molt-parent-watch", daemon=True
    ).start()
