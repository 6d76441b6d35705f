"""What a run prints, line by line, from its events."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from molt_core.api.events import (
    CheckpointSaved,
    EvalFinished,
    RolloutFinished,
    RunFinished,
    RunStarted,
    StepFinished,
)
from molt_core.experience import Outcome, RolloutSummary
from molt_core.report.console import CLEAR_LINE, Console
from molt_core.report.ledger import Ledger

FOLDER = Path("runs/one")


def part(name: str, package: str) -> dict[str, str]:
    return {"name": name, "dist": f"molt-plugin-{package}", "version": "0.1.0"}


PLAN = {
    "run": {
        "model": "smollm2", "dtype": "bfloat16", "steps": 4, "prompts_per_step": 4, "group_size": 8,
        "max_tokens": 12, "max_staleness": 0, "seed": 0,
    },
    "parts": {"envs": [part("arithmetic", "envs")], "engines": [part("vllm", "vllm")]},
}  # fmt: skip


def reply(prompt: str, text: str, reward: float) -> RolloutSummary:
    return RolloutSummary(
        rollout_id="r", group_id=prompt, outcome=Outcome.FINISHED, reward=reward, reason="", detail="",
        segment_tokens=(9,), segment_sampled=(4,), oldest_version=0, newest_version=0, info={},
        prompt_text=prompt, reply_text=text, seconds=1.0,
    )  # fmt: skip


def evaluation(step: int, *replies: RolloutSummary, passed: float) -> EvalFinished:
    metrics = {"eval/sums/pass@1": passed, "eval/sums/num_prompts": 2.0}
    return EvalFinished(step=step, version=step, metrics=metrics, summaries=replies)


def step(number: int, reward: float) -> StepFinished:
    return StepFinished(step=number, metrics={"reward/mean": reward, "time/step_s": 5.0})


def ended(outcome: str = "done", **more: object) -> RunFinished:
    ledger = Ledger()
    ledger.dispatch(num_rollouts=128)
    ledger.train(num_rollouts=125)
    ledger.drop("timeout", num_rollouts=3)
    return RunFinished(outcome=outcome, step=4, ledger=ledger.as_dict(), **more)  # type: ignore[arg-type]


def printed(*events: object, live: bool = False, columns: int = 100) -> str:
    stream = io.StringIO()
    console = Console(PLAN, FOLDER, stream, columns=columns, live=live)
    for event in events:
        console.on_event(event)  # type: ignore[arg-type]
    console.close()
    return stream.getvalue()


def test_a_whole_run_on_paper() -> None:
    before = [reply("2+2?", "It is\nfive", 0.0), reply("1+1?", "2", 1.0)]
    after = [reply("2+2?", "4", 1.0), reply("1+1?", "2", 1.0)]
    text = printed(
        RunStarted(run_folder=FOLDER, plan=PLAN),
        evaluation(0, *before, passed=0.5),
        *(step(number, reward) for number, reward in enumerate([0.0, 0.1, 0.2, 0.9], start=1)),
        evaluation(4, *after, passed=1.0),
        CheckpointSaved(step=4, path=FOLDER / "checkpoints/step_4", seconds=0.75),
        ended(checkpoint=FOLDER / "checkpoints/step_4"),
        columns=130,
    )
    assert text.splitlines() == [
        "model        smollm2 (bfloat16)",
        "environment  arithmetic (molt-plugin-envs 0.1.0)",
        "engine       vllm (molt-plugin-vllm 0.1.0)",
        "step         4 prompts x 8 rollouts of at most 12 tokens, staleness at most 0",
        "run folder   runs/one",
        "evaluation after step 0: sums/pass@1 0.500",
        "1/4 ##...... 15s left  reward 0.000  length -  cut -  stale -  generate -s train -s sync -s  - tok/s",
        "2/4 ####.... 10s left  reward 0.100  length -  cut -  stale -  generate -s train -s sync -s  - tok/s",
        "3/4 ######.. 5s left  reward 0.200  length -  cut -  stale -  generate -s train -s sync -s  - tok/s",
        "4/4 ######## 0s left  reward 0.900  length -  cut -  stale -  generate -s train -s sync -s  - tok/s",
        "evaluation after step 4: sums/pass@1 1.000",
        "step 4: saved runs/one/checkpoints/step_4 in 0.8s",
        "",
        "done: 4 steps in 20s",
        "  reward      0.100 -> 0.400  (mean of the first and last 3 steps)",
        "  evaluation  eval/sums/pass@1  0.500 -> 1.000",
        "  ledger      128 rollouts = 125 trained + 3 dropped + 0 pending  (3 timeout)",
        "  prompt      2+2?",
        r"  before      reward 0.00  It is\nfive",
        "  after       reward 1.00  4",
        "  checkpoint  runs/one/checkpoints/step_4",
        "next",
        "  train it further   molt resume runs/one --steps 8",
        "  evaluate it        molt eval runs/one/config.toml --model runs/one/latest",
        "  load it            AutoModelForCausalLM.from_pretrained('runs/one/latest')",
        "  again, other seed  molt run runs/one/config.toml --seed 1",
        "  read the numbers   runs/one/metrics.jsonl",
    ]


def test_paths_below_the_working_directory_are_shown_as_they_would_be_typed(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stream = io.StringIO()
    Console(PLAN, tmp_path / "runs/one", stream).on_event(
        ended(checkpoint=tmp_path / "runs/one/checkpoints/step_4")
    )
    assert str(tmp_path) not in stream.getvalue()
    assert "  checkpoint  runs/one/checkpoints/step_4" in stream.getvalue().splitlines()


@pytest.mark.parametrize("name", ["one", "one-seed-0"])
def test_the_next_run_of_a_named_one_has_another_name(name: str) -> None:
    stream = io.StringIO()
    Console({**PLAN, "run": {**PLAN["run"], "run_name": name}}, FOLDER, stream, columns=100).on_event(ended())
    assert "molt run runs/one/config.toml --seed 1 --run-name one-seed-1\n" in stream.getvalue()


def test_one_step_is_no_steps() -> None:
    lines = printed(StepFinished(step=1, metrics={"reward/mean": 0.5}), ended()).splitlines()
    assert "  reward      0.500 -> 0.500  (mean of the first and last 1 step)" in lines


def test_a_run_that_failed_before_its_first_step_says_why_and_claims_nothing() -> None:
    lines = printed(ended("failed", error="engine-0 died: out of memory")).splitlines()
    assert lines[1] == "failed: 4 steps in 0s"
    assert lines[2] == "  because     engine-0 died: out of memory"
    assert not any("->" in line or "checkpoint" in line or "prompt" in line for line in lines)


@pytest.mark.parametrize(("share", "said"), [(0.0, False), (0.89, False), (0.9, True), (1.0, True)])
def test_a_correction_that_leaves_out_nearly_everything_is_said_aloud(share: float, said: bool) -> None:
    metrics = {"reward/mean": 0.5, "correction/left_out_rate": share, "mismatch/abs_diff": 0.75}
    text = printed(StepFinished(step=2, metrics=metrics), columns=60)
    lines = [line for line in text.splitlines() if line.startswith("step 2: the correction left out")]
    assert bool(lines) == said
    if said:
        assert f"{share:.0%} of the tokens" in lines[0]
        assert "0.750 nats apart" in lines[0]
        assert "--correction.threshold" in lines[0]


def test_paper_has_no_control_characters_and_a_terminal_has_a_live_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    events = [RolloutFinished(step=0, summary=reply("p", "r", 1.0)), step(1, 0.5), evaluation(1, passed=0.5)]
    assert "\x1b" not in printed(*events)
    assert "rollouts" not in printed(*events)
    shown = printed(*events, live=True)
    assert f"{CLEAR_LINE}step 1: 1/32 rollouts{CLEAR_LINE}1/4" in shown
    assert "\x1b[2m" in shown


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[2m" not in printed(evaluation(1, passed=0.5), live=True)


def test_narrow_terminals_cut_samples_but_never_commands_or_errors() -> None:
    sample = (
        evaluation(0, reply("p" * 90, "b" * 90, 0.0), passed=0),
        evaluation(4, reply("p" * 90, "a", 1.0), passed=1),
    )
    lines = printed(*sample, ended(error="e" * 90), columns=40).splitlines()
    assert f"  prompt      {'p' * 23}..." in lines
    assert f"  because     {'e' * 90}" in lines
    assert "  again, other seed  molt run runs/one/config.toml --seed 1" in lines


def test_a_reader_that_has_gone_does_not_end_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    console = Console(PLAN, FOLDER, Gone(), columns=80)
    console.note("hello")
    console.on_event(ended())
