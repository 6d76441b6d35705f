"""Recorded batches come back as they were, and a record that is not whole is no record."""

from __future__ import annotations

import math

import numpy as np
import pytest
from safetensors.numpy import save_file

from molt_core.api.trainer import StepResult
from molt_core.errors import ConfigError
from molt_core.experience import Window
from molt_core.launch.record import (
    Recorder,
    batch_file,
    read_batch,
    read_outcome,
    recorded_steps,
    weights_digest,
    write_batch,
)
from molt_core.loop.ports import ItemReference, RankShare


def share(payloads):
    items = tuple(
        ItemReference(
            payload=payload, rollout_id=f"0-{number // 2}", segment=number, num_tokens=5,
            advantage=-0.1 * number, rollout_index=number // 2, group_index=0, rollout_tokens=4, group_tokens=9,
        )
        for number, payload in enumerate(payloads)
    )  # fmt: skip
    return RankShare(items=items, window=Window(num_tokens=9, num_rollouts=2, num_groups=1))


def test_a_share_comes_back_with_the_rollouts_as_payloads(tmp_path):
    write_batch(tmp_path / "batch", share(["ref", "ref", "other"]), {0: b"\x00first", 1: b"second"})

    assert read_batch(tmp_path / "batch") == share([b"\x00first", b"\x00first", b"second"])
    assert [path.name for path in tmp_path.iterdir()] == ["batch"]


def test_a_rank_without_items_has_a_record_too(tmp_path):
    write_batch(tmp_path / "batch", share([]), {})
    assert read_batch(tmp_path / "batch") == share([])


def test_what_is_no_batch_is_refused_with_its_name(tmp_path):
    (tmp_path / "batch").write_bytes(b"half")
    with pytest.raises(ConfigError, match=r"batch .*batch can't be read"):
        read_batch(tmp_path / "batch")


def test_a_step_is_recorded_when_its_weights_are_published_or_when_it_is_skipped(tmp_path):
    recorder = Recorder(tmp_path / "rollouts", 4)
    recorder.published(4, "weights of the checkpoint")
    assert recorder.begin(2) == [batch_file(tmp_path / "rollouts", 5, rank) for rank in (0, 1)]
    recorder.stepped(StepResult(applied=True, metrics={"policy/loss": 0.1}), 4)
    assert recorded_steps(tmp_path / "rollouts") == []
    recorder.published(5, "abc")
    recorder.begin(2)
    recorder.stepped(StepResult(applied=False, metrics={"policy/loss": math.nan}), 5)

    assert recorded_steps(tmp_path / "rollouts") == [5, 6]
    applied, skipped = (read_outcome(tmp_path / "rollouts", step) for step in (5, 6))
    assert (applied.version, applied.weights, applied.metrics) == (5, "abc", {"policy/loss": 0.1})
    assert (skipped.version, skipped.weights, skipped.applied) == (5, "", False)
    assert math.isnan(skipped.metrics["policy/loss"])


def test_a_step_that_was_not_recorded_is_named(tmp_path):
    with pytest.raises(ConfigError, match="step 7 was not recorded"):
        read_outcome(tmp_path, 7)


def test_the_digest_of_weights_is_that_of_the_tensors_alone(tmp_path):
    weights = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float16)}
    save_file(weights, tmp_path / "one", metadata={"version": "1", "by": "me"})
    save_file(weights, tmp_path / "two", metadata={"version": "2"})
    save_file(weights | {"b": np.zeros(2, np.float16)}, tmp_path / "three")
    one, two, three = (weights_digest(tmp_path / name) for name in ("one", "two", "three"))

    assert one == two != three
