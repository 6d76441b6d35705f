"""Slot `models`: names for `--model` that become a local model folder.

API 1. The factory is called as `factory(options)` in a process of its own, because making the
folder may import torch, which the driver does not.

    class FromMyPackage:
        def __init__(self, options: NoOptions) -> None: ...
        def prepare(self, cache: Path) -> Path:
            return make_once(cache / "my-model")
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class PackagedModel(Protocol):
    def prepare(self, cache: Path) -> Path:
        """Return a folder with config.json, safetensors weights, tokenizer and chat template.

        Made below `cache` on the first call; later calls return at once. Needs no network. Several
        processes may call it at the same time. Raises PreflightError if what it is made from is
        not installed.
        """
        ...
