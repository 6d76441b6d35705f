"""A file that trains also evaluates: what is for training is left out, whatever is wrong with it."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from molt_core.api.run_options import RunOptions
from molt_core.api.spec import SLOTS
from molt_core.config.help import help_text
from molt_core.config.parse import Configuration, configure, draft
from molt_core.config.purpose import EVAL, OWN_TASKS
from molt_core.plan.check import examine
from molt_core.plan.plan import freeze
from molt_core.plugins.scan import Scan

TRAINING = """\
model = "tiny"
lr = 1e-3
temperature = 0.7
hooks = ["tensorboard"]
data = "train.jsonl"
run_name = "mine"
[env]
use = "verify"
[estimator]
use = "wreck"
kl_coef = "of another type"
[trainer]
use = "not-installed"
"""


@pytest.fixture
def training() -> str:
    Path("run.toml").write_text(TRAINING)
    for name in ("train.jsonl", "test.jsonl"):
        Path(name).write_text('{"prompt": "1+1", "answer": "2"}\n')
    return "run.toml"


def evaluation(scan: Scan, *argv: str) -> Configuration:
    return configure([*argv, "--model", "tiny"], scan, EVAL)


def test_parts_for_training_are_neither_chosen_nor_loaded(stand_ins: Scan, training: str) -> None:
    examined = examine([training], stand_ins, EVAL)
    (note,) = examined.findings
    assert (note.level, note.code) == ("note", "M131")
    for name in ("lr", "temperature", "hook", "run_name", "estimator", "trainer"):
        assert name in note.message
    assert set(freeze(examined.view).parts) == {"envs", "engines", "executors", "models"}
    assert examined.configuration.run.run_name is None, "the training run has that name"


def test_a_flag_for_training_is_worth_a_warning(stand_ins: Scan, training: str) -> None:
    (finding,) = draft([training, "--lr", "1", "--model", "tiny"], stand_ins, EVAL).findings
    assert finding.level == "warning"
    assert evaluation(stand_ins, training, "--run-name", "other").run.run_name == "other"


@pytest.mark.parametrize(
    ("argv", "data", "num_prompts"),
    [
        (("--env", "verify", "--data", "test.jsonl"), "test.jsonl", 0),
        (("--env", "verify", "--data", "train.jsonl", "--eval-data", "test.jsonl"), "test.jsonl", 0),
        (("--env", "verify", "--data", "test.jsonl", "--eval-prompts", "3"), "test.jsonl", 3),
        (("--data", "arithmetic"), None, OWN_TASKS),
        (("--env", "arithmetic"), None, OWN_TASKS),
        (("--data", "arithmetic", "--eval-data", "test.jsonl"), "test.jsonl", 0),
        (("--env", "arithmetic", "--data", "train.jsonl", "--eval-data", "arithmetic"), None, OWN_TASKS),
    ],
)
def test_what_is_evaluated(
    stand_ins: Scan, training: str, argv: tuple[str, ...], data: str | None, num_prompts: int
) -> None:
    run = evaluation(stand_ins, *argv).run
    assert (run.data, run.eval_data, run.eval_prompts) == (data, None, num_prompts)


def test_its_origin_is_where_it_was_said(stand_ins: Scan, training: str) -> None:
    assert evaluation(stand_ins, training, "--eval-data", "test.jsonl").origins["data"] == "--eval-data"


def test_help_leaves_out_what_is_for_training(stand_ins: Scan) -> None:
    text = help_text([], stand_ins, "molt eval", EVAL)
    assert text.startswith("usage: molt eval")
    assert "--eval-samples" in text
    assert not any(flag in text for flag in ("--lr ", "--estimator", "--trainer", "--steps"))


def test_every_core_option_is_for_training_or_for_evaluation() -> None:
    """A new option that only training reads belongs into EVAL.unused_keys."""
    used = {attribute.name for attribute in attrs.fields(RunOptions)} - EVAL.unused_keys
    assert used == {
        "data", "deterministic", "dtype", "engines", "env_timeout_s", "eval_concurrency", "eval_data", "eval_prompts",
        "eval_samples", "eval_temperature", "max_length", "max_restarts", "max_tokens", "min_engines", "model",
        "output_dir", "ray_address", "rollout_timeout_s", "run_name", "seed", "threads", "workers",
    }  # fmt: skip
    assert set(SLOTS) - EVAL.unused_slots == {"agents", "engines", "envs", "executors", "gateways", "models"}
