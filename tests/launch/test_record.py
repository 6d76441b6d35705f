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
    num_recorded_ranks,
    read_batch,
    read_outcome,
    read_share,
    recorded_steps,
    weights_digest,
    write_batch,
)
from molt_core.loop.ports import ItemReference, RankShare
from molt_core.loop.shares import spread


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


@pytest.mark.parametrize(("recorded", "now"), [(1, 2), (2, 1), (3, 2), (2, 5)])
def test_another_number_of_ranks_gets_what_it_would_have_got(tmp_path, recorded, now):
    lengths = [(group, rollout, length) for group in range(3) for rollout, length in enumerate((4, 9, 2))]
    items = [
        ItemReference(
            payload=b"%d" % number, rollout_id=str(number), segment=0, num_tokens=length, advantage=0.5,
            rollout_index=number, group_index=group, rollout_tokens=length, group_tokens=15,
        )
        for number, (group, _, length) in enumerate(lengths)
    ]  # fmt: skip
    window = Window(num_tokens=45, num_rollouts=9, num_groups=3)
    for rank, part in enumerate(spread(items, window, recorded)):
        rollouts = {item.rollout_index: item.payload for item in part.items}
        write_batch(batch_file(tmp_path, 4, rank), part, rollouts)

    assert num_recorded_ranks(tmp_path, 4) == recorded
    assert num_recorded_ranks(tmp_path, 5) == 0
    for ranks in (recorded, now):
        shares = tuple(read_share(tmp_path, 4, rank, ranks) for rank in range(ranks))
        assert shares == spread(items, window, ranks)


def test_a_batch_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "batch"
    write_batch(path, share(["ref"]), {0: b"tokens"})
    whole = path.read_bytes()
    for old, new in [(b"tokens", b"tokenz"), (b"-0.0", b"-0.5"), (b'num_tokens\\": 9', b'num_tokens\\": 8')]:
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(ConfigError, match="batch .*batch can't be read: .*checksum differs"):
            read_batch(path)


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
