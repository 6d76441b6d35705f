"""Makes tiny_trainer.py importable here and in spawned ranks; one model of each kind for all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from molt_core.experience import TrainItem

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", params=["qwen3", "llama"])
def model_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model: qwen3 with a tied output layer, llama without."""
    from tiny_trainer import save_model

    return save_model(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="session")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_trainer import save_model

    return save_model(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def items(qwen3_folder: Path) -> list[TrainItem]:
    """Sampled by nearly the policy that trains on them."""
    from every_algorithm import near_policy

    return near_policy(qwen3_folder)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_trainer import save_model

    return save_model(tmp_path_factory.mktemp("teacher"), "llama")
