"""One, two and three gloo ranks do the same to the weights, whatever share of the window each one has."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from safetensors.torch import load_file
from tiny_trainer import (
    AS_GRADIENT,
    assert_equal_weights,
    plain_model,
    published,
    run_ranks,
    save_model,
    started,
    train_batch,
    window_items,
    window_of,
)

pytestmark = pytest.mark.real
ITEMS = window_items()
WINDOW = window_of(ITEMS)
SMALL_ROWS: dict[str, Any] = {"tokens_per_micro_batch": 24}


def share(rank: int, world_size: int) -> list[Any]:
    """Uneven on purpose: with two ranks the second has a quarter, with three the last has nothing."""
    if world_size == 1:
        return ITEMS
    cut = 9 if world_size == 2 else 5
    return [ITEMS[:cut], ITEMS[cut:], []][rank]


def one_rank(rank: int, world_size: int, model: Path, folder: Path, rendezvous: str) -> None:
    """A step, a step that is not finite on rank 0 only, a checkpoint, and one more step."""
    settings: dict[str, Any] = {**AS_GRADIENT, **SMALL_ROWS}
    items = share(rank, world_size)
    with started(model, rank=rank, world_size=world_size, rendezvous=rendezvous, **settings) as made:
        results = [made.step(train_batch(items, WINDOW))]
        made.publish(1, folder / "first")
        broken = [evolve(items[0], advantage=float("nan")), *items[1:]] if rank == 0 else items
        results.append(made.step(train_batch(broken, WINDOW)))
        made.publish(2, folder / "skipped")
        made.save(folder / "state")
        results.append(made.step(train_batch(items, WINDOW)))
        made.publish(3, folder / "last")
        made.export(folder / "export")
    report = [{"applied": result.applied, "metrics": dict(result.metrics)} for result in results]
    (folder / f"rank{rank}.json").write_text(json.dumps(report), encoding="utf-8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module", params=[2, 3])
def world(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that the ranks of one world left behind."""
    folder = tmp_path_factory.mktemp(f"world{request.param}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        rendezvous = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    run_ranks(one_rank, request.param, model, folder, rendezvous)
    return folder


@pytest.fixture(scope="module")
def alone(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world1")
    one_rank(0, 1, model, folder, "")
    return folder


def reports(folder: Path) -> list[list[dict[str, Any]]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]


@pytest.mark.parametrize("moment", ["first", "last"])
def test_weights_after_a_step_equal_those_of_one_rank(world: Path, alone: Path, moment: str) -> None:
    got, wanted = (load_file(folder / moment / "weights.safetensors") for folder in (world, alone))
    assert_equal_weights(got, wanted)


def test_metrics_are_equal_on_all_ranks_and_those_of_one_rank(world: Path, alone: Path) -> None:
    (wanted,) = reports(alone)
    first, *others = (report[0]["metrics"] for report in reports(world))
    assert others == [first] * len(others)
    assert first.keys() == wanted[0]["metrics"].keys()
    for name in first.keys() - {"trainer/input_tokens", "trainer/micro_batches"}:
        assert first[name] == pytest.approx(wanted[0]["metrics"][name], abs=1e-4), name


def test_a_step_that_is_not_finite_on_one_rank_is_skipped_on_all(world: Path) -> None:
    assert {tuple(step["applied"] for step in report) for report in reports(world)} == {(True, False, True)}
    before, after = (load_file(world / moment / "weights.safetensors") for moment in ("first", "skipped"))
    assert_equal_weights(after, before, atol=0)


def test_one_rank_goes_on_from_the_state_of_many(world: Path, model: Path, tmp_path: Path) -> None:
    with started(model, **AS_GRADIENT, **SMALL_ROWS) as made:
        made.load(world / "state")
        assert made.step(train_batch(ITEMS)).applied
        got = published(made, tmp_path)
    assert_equal_weights(got, load_file(world / "last" / "weights.safetensors"))


def test_many_ranks_export_a_whole_model(world: Path) -> None:
    exported = {name: param.detach() for name, param in plain_model(world / "export").named_parameters()}
    assert_equal_weights(exported, load_file(world / "last" / "weights.safetensors"), atol=0)
