"""Every loss, correction and estimator on 2 and 3 gloo ranks does what it does on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from every_algorithm import CHOICES, LIKE_A_GRADIENT, near_policy, settings, state
from safetensors.torch import load_file, save_file
from tiny_trainer import assert_equal_weights, run_ranks, save_model, started, train_batch, window_of

pytestmark = pytest.mark.real


def one_rank(rank: int, world_size: int, model: Path, teacher: Path, folder: Path) -> None:
    """Two steps of each choice; uneven shares, and with three ranks the last one has nothing."""
    items = near_policy(model)
    window = window_of(items)
    cuts = {1: [12], 2: [9, 12], 3: [5, 12, 12]}[world_size]
    share = items[cuts[rank - 1] if rank else 0 : cuts[rank]]
    for number, choice in enumerate(CHOICES.values()):
        meeting = f"file://{folder}/meeting{number}" if world_size > 1 else ""
        ranks = {"rank": rank, "world_size": world_size, "rendezvous": meeting}
        chosen = settings(choice, teacher)
        with started(model, tokens_per_micro_batch=64, **ranks, **LIKE_A_GRADIENT, **chosen) as made:
            metrics = [dict(made.step(train_batch(share, window)).metrics) for _ in range(2)]
            after = state(made)
        (folder / f"{number}.{rank}.json").write_text(json.dumps(metrics), encoding="utf-8")
        if rank == 0:
            save_file(after, folder / f"{number}.safetensors")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    kinds = ("qwen3", "llama")
    policy, teacher = (save_model(tmp_path_factory.mktemp(kind), kind) for kind in kinds)
    return policy, teacher


@pytest.fixture(scope="module", params=[2, 3])
def world(
    request: pytest.FixtureRequest, models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp(f"world{request.param}")
    run_ranks(one_rank, request.param, *models, folder)
    return folder


@pytest.fixture(scope="module")
def alone(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world1")
    one_rank(0, 1, *models, folder)
    return folder


@pytest.mark.parametrize("number", range(len(CHOICES)), ids=CHOICES)
def test_weights_and_metrics_are_those_of_one_rank(world: Path, alone: Path, number: int) -> None:
    assert_equal_weights(
        *(load_file(folder / f"{number}.safetensors") for folder in (world, alone)), atol=5e-5
    )
    (wanted,) = (json.loads(path.read_text()) for path in alone.glob(f"{number}.*.json"))
    first, *others = (json.loads(path.read_text()) for path in sorted(world.glob(f"{number}.*.json")))
    assert others == [first] * len(others)
    for step, expected in zip(first, wanted, strict=True):
        assert step.keys() == expected.keys()
        for name in step.keys() - {"trainer/input_tokens", "trainer/micro_batches"}:
            assert step[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-4), name
