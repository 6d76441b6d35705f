"""A run is killed in the middle of things, with its whole process group, and goes on as if nothing had been.

In deterministic mode that means: to the bit. `make soak` kills fifty times.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from molt_core.experience.codec import decode
from molt_core.launch.record import read_batch, recorded_steps, weights_digest
from molt_core.report.json_lines import read_json_lines
from tests.road.conftest import EMBEDDED, ROOT, TIMEOUT_S, Run

PROMPTS = 4
EPOCH = 6
"""Steps in which each of the 24 prompts comes once."""
OPTIONS = (
    *EMBEDDED, "--env", "verify", "--env.reward", "examples/tiny_reward.py:reward_digits", "--steps", str(EPOCH),
    "--prompts-per-step", str(PROMPTS), "--save-every", "2", "--eval-every", "2", "--eval-prompts", "8",
    "--eval-data", "examples/tiny.jsonl", "--record", "--hook", "tensorboard",
)  # fmt: skip
PHASES = ("generating", "updating", "saving", "evaluating")


def begin(folder: Path, *flags: str) -> Run:
    """A new run, on data of its own."""
    folder.mkdir(exist_ok=True)
    data = folder / "data.jsonl"
    shutil.copy(ROOT / "examples" / "tiny.jsonl", data)
    return Run(folder, *OPTIONS, "--data", str(data), *flags, forked="vllm" not in flags)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = begin(tmp_path_factory.mktemp("undisturbed"), "--deterministic")
    code, output = run.wait()
    assert code == 0, output
    yield run
    run.end()


def phase(folder: Path) -> str:
    """What the run is doing just now, from what it has written."""
    if list(folder.glob("checkpoints/.step_*.unfinished")):
        return "saving"
    steps = recorded_steps(folder / "rollouts")
    done = max(steps, default=0)
    if (folder / "rollouts" / f"step_{done + 1}.rank_0.safetensors").exists():
        return "updating"
    lines = read_json_lines(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    if lines and lines[-1]["step"] == done and done % 2 == 0 and "version" not in lines[-1]:
        return "evaluating"
    return "generating" if lines else "starting"


def kill_while(run: Run, wanted: str, chance: random.Random) -> str:
    """Kill the run at a random moment of a phase. Returns the phase that it was in, or that it had ended."""
    moments = chance.randrange(1, 4)
    deadline = time.monotonic() + TIMEOUT_S
    while not run.has_ended:
        assert time.monotonic() < deadline
        moments -= phase(run.folder) == wanted
        if moments <= 0:
            time.sleep(chance.uniform(0, 0.02))
            seen = phase(run.folder)
            run.kill()
            return seen
        time.sleep(0.002)
    return "ended"


def killed_and_resumed(
    folder: Path, flags: tuple[str, ...], phases: list[str], chance: random.Random
) -> tuple[Run, list[str]]:
    """A run that is killed once in each of the phases, as far as it comes to them, and then let go on to its end."""
    run = begin(folder, *flags)
    seen = []
    for wanted in phases:
        seen.append(kill_while(run, wanted, chance))
        assert run.left_behind() == []
        run = Run(folder, command="resume", forked="vllm" not in flags)
    code, output = run.wait()
    assert code == 0, output
    return run, seen


def trained_prompts(folder: Path) -> list[list[str]]:
    """Prompts of each step, from the recorded batches."""
    steps = []
    for step in recorded_steps(folder / "rollouts"):
        share = read_batch(folder / "rollouts" / f"step_{step}.rank_0.safetensors")
        steps.append([decode(item.payload).prompt_text for item in share.items])
    return steps


def assert_exactly_once(run: Run) -> None:
    assert [step["step"] for step in run.steps()] == list(range(1, EPOCH + 1)), "each step is told once"
    trained = list(itertools.chain.from_iterable(trained_prompts(run.folder)))
    assert len(trained) == 24 * 4
    assert {trained.count(prompt) for prompt in trained} == {4}, "each prompt with its four replies, once"
    for unit, count in (("prompts", 24), ("rollouts", 96)):
        assert run.ledger()[unit] == {"dispatched": count, "trained": count, "dropped": {}, "pending": 0}
    evaluated = [line["step"] for line in read_json_lines(run.folder / "metrics.jsonl") if "version" in line]
    assert evaluated == [0, 2, 4, 6]
    scalars = EventAccumulator(str(run.folder / "tensorboard")).Reload().Scalars
    assert [event.step for event in scalars("reward/mean")] == list(range(1, EPOCH + 1))
    assert [event.step for event in scalars("eval/verify/pass@1")] == [0, 2, 4, 6]


def digests(folder: Path) -> dict[str, str]:
    """Of weights, moments and exported model; not of what else headers say."""
    latest = folder / "latest"
    return {str(path.relative_to(latest)): weights_digest(path) for path in latest.rglob("*.safetensors")}


def assert_equal_to_the_bit(run: Run, undisturbed: Run) -> None:
    assert digests(run.folder) == digests(undisturbed.folder)
    assert trained_prompts(run.folder) == trained_prompts(undisturbed.folder)
    for name in ("policy/loss", "policy/grad_norm", "reward/mean", "mismatch/kl"):
        assert [step[name] for step in run.steps()] == [step[name] for step in undisturbed.steps()]


@pytest.mark.real
@pytest.mark.timeout(900)
def test_killed_in_every_phase_it_ends_with_the_bits_of_the_undisturbed_run(undisturbed, tmp_path):
    run, seen = killed_and_resumed(tmp_path, ("--deterministic",), list(PHASES), random.Random(7))

    assert "ended" not in seen
    assert_exactly_once(run)
    assert_equal_to_the_bit(run, undisturbed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(10))
def test_killed_five_times_it_trains_every_prompt_once(undisturbed, tmp_path, seed):
    chance = random.Random(seed)
    deterministic = seed % 2 == 0
    flags = ("--deterministic",) if deterministic else ("--max-staleness", "2", "--workers", "2")
    phases = [*chance.sample(PHASES, 4), "generating"]
    run, seen = killed_and_resumed(tmp_path, flags, sorted(phases, key=lambda _: chance.random()), chance)

    print(f"seed {seed}: killed while {', '.join(seen)}")
    assert "ended" not in seen
    if deterministic:
        assert_exactly_once(run)
        assert_equal_to_the_bit(run, undisturbed)
    else:
        trained = list(itertools.chain.from_iterable(trained_prompts(run.folder)))
        assert {trained.count(prompt) for prompt in trained} == {4}
        assert run.ledger()["prompts"]["trained"] == 24


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_with_vllm_on_a_cpu_the_bits_are_those_of_the_undisturbed_run_too(tmp_path):
    flags = ("--deterministic", "--engine", "vllm")
    whole = begin(tmp_path / "whole", *flags)
    code, output = whole.wait()
    assert code == 0, output
    run, seen = killed_and_resumed(
        tmp_path / "killed", flags, ["generating", "saving", "updating"], random.Random(3)
    )

    assert "ended" not in seen
    assert_exactly_once(run)
    assert_equal_to_the_bit(run, whole)


@pytest.mark.real
def test_a_done_run_says_so_and_changes_nothing(undisturbed):
    before = {path: path.stat().st_mtime_ns for path in undisturbed.folder.rglob("*") if path.name != ".lock"}
    again = Run(undisturbed.folder.parent, command="resume", forked=True)
    code, output = again.wait()

    assert code == 0
    assert "this run is done: step 6; --steps 12 would train it further" in output
    after = {path: path.stat().st_mtime_ns for path in undisturbed.folder.rglob("*") if path.name != ".lock"}
    assert before == after


@pytest.mark.real
def test_a_scheduler_that_ends_the_run_gets_130_and_a_checkpoint_and_nobody_else_may_work_in_the_folder(
    tmp_path,
):
    run = begin(tmp_path, "--deterministic", "--eval-every", "0", "--save-every", "100", "--steps", "1000")
    run.wait_for_steps(3)
    code, output = Run(tmp_path, command="resume", forked=True).wait()
    assert code == 3, output
    assert f"works in run folder '{run.folder}'; wait for it, or stop it" in output

    run.terminate()
    code, output = run.wait()
    assert code == 130, output
    assert "stopped by SIGTERM after step" in output
    assert "Traceback" not in output
    done = len(run.steps())
    code, output = Run(tmp_path, "--steps", str(done + 1), command="resume", forked=True).wait()
    assert code == 0, output
    assert f"going on after step {done}, from" in output
    assert [step["step"] for step in run.steps()] == list(range(1, done + 2))
    assert run.ledger()["prompts"] == {
        "dispatched": 4 * done + 4,
        "trained": 4 * done + 4,
        "dropped": {},
        "pending": 0,
    }


@pytest.mark.real
def test_replay_finds_every_recorded_step_equal_and_a_changed_batch_not(undisturbed, tmp_path):
    code, output = Run(undisturbed.folder.parent, command="replay", forked=True).wait()
    assert code == 0, output
    assert "beginning with the model" in output
    assert output.count("loss, gradient norm and weights are equal") == EPOCH
    assert "6 steps, all equal" in output

    copy = tmp_path / "run"
    shutil.copytree(undisturbed.folder, copy, symlinks=True)
    batches = copy / "rollouts"
    shutil.copy(batches / "step_2.rank_0.safetensors", batches / "step_6.rank_0.safetensors")
    code, output = Run(tmp_path, "--steps", "5-6", command="replay", forked=True).wait()
    assert code == 4, output
    assert "beginning after step 4" in output, "from the checkpoint before"
    assert "step 5: loss, gradient norm and weights are equal" in output
    assert "1 of 2 steps came out differently: 6" in output
    assert "Traceback" not in output


@pytest.mark.real
def test_replay_by_more_ranks_compares_what_does_not_depend_on_the_order_of_sums(undisturbed):
    flags = ("--steps", "6", "--trainer-ranks", "2")
    code, output = Run(undisturbed.folder.parent, *flags, command="replay", forked=True).wait()

    assert code == 0, output
    assert "trainer ranks: 1 in the record, 2 now" in output
    assert "step 6: loss and gradient norm are equal within 1%" in output
    assert output.endswith("1 step, equal within a percent\n")


@pytest.mark.real
def test_changed_data_is_refused_before_anything_is_started_or_changed(undisturbed, tmp_path):
    shutil.copytree(undisturbed.folder.parent, tmp_path, symlinks=True, dirs_exist_ok=True)
    config = tmp_path / "run" / "config.toml"
    data = tmp_path / "data.jsonl"
    config.write_text(config.read_text().replace(str(undisturbed.folder.parent), str(tmp_path)))
    plan = tmp_path / "run" / "plan.json"
    plan.write_text(plan.read_text().replace(str(undisturbed.folder.parent), str(tmp_path)))
    data.write_text(data.read_text().replace("1+2", "1+3", 1))
    code, output = Run(tmp_path, "--steps", "8", command="resume", forked=True).wait()

    assert code == 2, output
    assert "the checkpoint was made with data of fingerprint" in output
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (
        undisturbed.folder / "metrics.jsonl"
    ).read_bytes()
