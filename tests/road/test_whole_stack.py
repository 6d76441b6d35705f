"""vLLM, Ray and FSDP2 together: it learns, what it leaves can be used, and it goes on from there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from molt_core.report.json_lines import read_json_lines
from tests.road.conftest import Run

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, str]]:
    """`molt run examples/tiny.toml`, as it stands."""
    run = Run(tmp_path_factory.mktemp("tiny"), "examples/tiny.toml")
    code, output = run.wait()
    assert code == 0, output
    yield run, output
    run.end()


def test_the_tiny_example_learns(tiny):
    run, output = tiny
    rewards = [step["reward/mean"] for step in run.steps()]
    assert sum(rewards[:3]) / 3 < 0.2
    assert min(rewards[-3:]) >= 0.9
    assert "checkpoint" in output.splitlines()[-7]


def test_trainer_and_engine_agree_before_and_after_updates(tiny):
    run, _ = tiny
    assert max(step["mismatch/abs_diff"] for step in run.steps()) < 1e-4


def test_strictly_on_policy_never_trains_on_an_older_version(tiny):
    run, _ = tiny
    assert {step["staleness/max"] for step in run.steps()} == {0.0}


def test_the_ledger_balances_to_the_token(tiny):
    run, _ = tiny
    for unit in ("prompts", "rollouts", "tokens"):
        account = run.ledger()[unit]
        assert account["pending"] == 0
        assert account["dispatched"] == account["trained"] + sum(account["dropped"].values())
    assert run.ledger()["rollouts"]["trained"] == 32 * len(run.steps())


def test_the_run_folder_holds_what_the_contract_names(tiny):
    run, _ = tiny
    assert json.loads((run.folder / "plan.json").read_text())["parts"]["engines"][0]["name"] == "vllm"
    assert "max_staleness = 0" in (run.folder / "config.toml").read_text()
    (checkpoint,) = (run.folder / "checkpoints").iterdir()
    assert (run.folder / "latest").resolve() == checkpoint
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert {name: (checkpoint / name).stat().st_size for name in manifest} == {
        name: entry["bytes"] for name, entry in manifest.items()
    }


def test_the_checkpoint_loads_in_transformers(tiny):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run, _ = tiny
    model = AutoModelForCausalLM.from_pretrained(run.folder / "latest")
    tokenizer = AutoTokenizer.from_pretrained(run.folder / "latest")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 1+2?"}],
        return_tensors="pt",
        add_generation_prompt=True,
        return_dict=True,
    )
    reply = model.generate(**prompt, max_new_tokens=6, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert any(character.isdigit() for character in tokenizer.decode(reply))


def test_the_checkpoint_is_evaluated_by_the_folder_of_its_run(tiny, tmp_path):
    first, _ = tiny
    run = Run(
        tmp_path, "examples/tiny.toml", "--model", str(first.folder), "--engine", "transformers",
        "--executor", "local", command="eval",
    )  # fmt: skip
    try:
        code, output = run.wait()
        assert code == 0, output
        assert "checkpoints/step_" in output, "which checkpoint it was"
        (metrics,) = read_json_lines(run.folder / "metrics.jsonl")
        assert metrics["eval/verify/reward_mean"] > 0.8
    finally:
        run.end()


def test_no_process_is_left(tiny):
    run, _ = tiny
    assert run.left_behind() == []


def test_it_goes_on_from_its_checkpoint_with_two_engines_two_ranks_and_stale_policies(tiny, tmp_path):
    first, _ = tiny
    run = Run(
        tmp_path, "examples/tiny.toml", "--model", str(first.folder / "latest"),
        "--engines", "2", "--trainer-ranks", "2", "--workers", "2", "--max-staleness", "1",
        "--steps", "6", "--stop-at-reward", "none", "--lr", "1e-4", "--hook", "tensorboard",
    )  # fmt: skip
    try:
        code, output = run.wait()
        assert code == 0, output
        steps = run.steps()
        assert steps[0]["reward/mean"] > 0.8, "the weights were loaded into vLLM"
        assert max(step["staleness/max"] for step in steps) == 1.0
        assert max(step["mismatch/abs_diff"] for step in steps) < 0.1
        assert list(Path(run.folder / "tensorboard").iterdir())
        assert run.left_behind() == []
    finally:
        run.end()
