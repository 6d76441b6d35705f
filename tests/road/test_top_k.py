"""Whole runs over the sampler's likeliest tokens: a policy trained off-policy with centred scores teaches another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.road.conftest import Run

pytestmark = pytest.mark.real
TINY = ("examples/tiny.toml", "--executor", "local", "--engine", "transformers")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(
        tmp_path_factory.mktemp("teacher"), *TINY, "--steps", "8", "--max-staleness", "1",
        "--correction", "score-centering", "--correction.level", "token", "--correction.top-k", "64",
    )  # fmt: skip
    code, output = run.wait()
    assert code == 0, output
    yield run
    run.end()


def test_scores_are_centred_off_policy(teacher):
    steps = teacher.steps()
    assert max(step["staleness/max"] for step in steps) == 1
    assert all(64 / 512 <= step["policy/top_mass"] <= 1 for step in steps), "the likeliest 64 of 512"
    assert teacher.ledger()["rollouts"]["dropped"].keys() <= {"run_ended"}


def test_top_k_distillation_comes_near_its_teacher(teacher, tmp_path):
    run = Run(
        tmp_path, *TINY, "--steps", "10", "--estimator", "reinforce++", "--reference", str(teacher.folder),
        "--loss", "topk_reverse_kl", "--loss.top-k", "512",
    )  # fmt: skip
    try:
        code, output = run.wait()
        assert code == 0, output
    finally:
        run.end()
    # over the whole vocabulary of 512 tokens this is the divergence itself
    divergence = [step["policy/loss"] for step in run.steps()]
    assert divergence[-1] < divergence[0] / 3
