"""What `molt resume` and `molt replay` refuse, before they start or change anything."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from molt_core.cli import replay, resume
from molt_core.config.tables import to_toml
from molt_core.errors import ConfigError, PreflightError
from molt_core.launch.checkpoint import Keep, begin, commit
from molt_core.plan.check import examine
from molt_core.plan.plan import freeze
from molt_core.plugins.scan import scan
from molt_core.report.run_folder import RunFolder

FLAGS = ["--model", "tiny", "--data", "arithmetic", "--steps", "40", "--max-tokens", "16"]


def state(step: int, outcome: str = "running") -> dict:
    return {
        "schema": 2, "step": step, "version": step, "outcome": outcome, "evaluated_step": None, "evaluation_due": False,
        "scored_by": None, "scores": {}, "skipped_in_a_row": 0, "good_steps_in_a_row": 0, "num_filtered": 0,
        "num_lost_groups": 0,
        "tasks": {}, "ledger": {}, "tasks_open": [], "parts": {}, "clock_s": 0.0,
        "buffer": {"ready": [], "in_flight": [], "num_started": 0, "num_dropped": 0},
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of 40 steps that was killed after step 20, with checkpoints of steps 10 and 20."""
    examined = examine([*FLAGS, "--output-dir", str(tmp_path), "--run-name", "one"], scan())
    folder = RunFolder.create(tmp_path, "one")
    folder.write(plan_json=freeze(examined.view).to_json(), config_toml=to_toml(examined.configuration))
    for step in (10, 20):
        save(folder.path, step)
    return folder.path


def save(run: Path, step: int, outcome: str = "running") -> Path:
    unfinished = begin(run / "checkpoints", step)
    (unfinished / "model.safetensors").write_bytes(b"weights")
    return commit(unfinished, step, state(step, outcome), keep=Keep(newest=2))


def listing(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def said(error: ConfigError) -> str:
    return "\n".join(f"{finding.message}\n{finding.fix}" for finding in error.findings)


def refuse(*words: str) -> str:
    with pytest.raises(ConfigError) as refused:
        resume.main(list(words))
    return said(refused.value)


def test_it_says_where_it_would_go_on_and_what_has_changed(run, capsys):
    before = listing(run)
    assert resume.main([str(run), "--steps", "60", "--engine", "transformers", "--dry-run"]) == 0

    printed = capsys.readouterr().out
    assert "changed: steps 40 -> 60" in printed
    assert "changed: engine 'vllm' -> 'transformers'" in printed
    assert f"going on after step 20, from {run / 'checkpoints' / 'step_20'}" in printed
    assert listing(run) == before


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--seed", "7"], "seed was 0 when the run began and is 7 now"),
        (["--group-size", "4"], "group_size was 8"),
        (["--estimator", "grpo"], "estimator was 'reinforce++' when the run began and is 'grpo' now"),
        (["--loss.clip-low", "0.1"], "loss.clip_low was 0.2"),
        (["--trainer.weight-decay", "0.5"], "trainer.weight_decay was"),
        (["--lr", "1e-3"], "lr was 1e-06"),
        (["--output-dir", "elsewhere"], "output_dir was"),
    ],
)
def test_a_change_of_meaning_is_refused_with_both_sides_and_a_way_out(run, flags, told):
    before = listing(run)
    message = refuse(str(run), *flags, "--steps", "50")

    assert told in message
    assert f"leave {flags[0]} out" in message
    assert "steps was" not in message, "what may change is no complaint"
    assert listing(run) == before


def test_in_deterministic_mode_what_changes_the_order_of_sums_is_refused(run):
    plan = json.loads((run / "plan.json").read_text())
    plan["run"]["deterministic"] = True
    (run / "plan.json").write_text(json.dumps(plan))
    config = run / "config.toml"
    config.write_text(config.read_text().replace("deterministic = false", "deterministic = true"))

    assert "trainer_ranks was 1" in refuse(str(run), "--trainer-ranks", "2")


def test_every_wrong_flag_is_told_as_by_molt_run(run):
    message = refuse(str(run), "--stepz", "5", "--keep-checkpoints", "0")
    assert "--stepz" in message
    assert "keep" in message


@pytest.mark.parametrize("command", [resume.main, replay.main])
def test_what_is_no_run_is_said_to_be_none(tmp_path, command):
    (tmp_path / "empty").mkdir()
    for path, reason in [("empty", "has no plan.json"), ("nowhere", "is no folder")]:
        with pytest.raises(ConfigError, match=f"is no run: it {reason}"):
            command([str(tmp_path / path)])
    with pytest.raises(ConfigError, match="run"):
        command([])


@pytest.mark.parametrize("command", [resume.main, replay.main])
def test_an_evaluation_is_not_gone_on_with(run, command):
    plan = json.loads((run / "plan.json").read_text())
    del plan["parts"]["trainers"]
    (run / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(ConfigError, match="is an evaluation: nothing was trained in it"):
        command([str(run)])


def test_a_second_process_is_kept_out_of_the_folder(run):
    with (run / ".lock").open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.truncate(0)
        held.write("process 1234 on there\n")
        held.flush()
        with pytest.raises(PreflightError, match="process 1234 on there works in run folder"):
            resume.main([str(run)])
    assert resume.main([str(run), "--dry-run"]) == 0


def test_a_folder_that_cannot_be_written_is_said_to_be_so(run):
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").mkdir()
    with pytest.raises(PreflightError, match="can't be written"):
        resume.main([str(run)])


def test_a_damaged_checkpoint_is_passed_over_and_told(run, capsys):
    (run / "checkpoints" / "step_20" / "model.safetensors").write_bytes(b"WEIGHTS")
    assert resume.main([str(run), "--dry-run"]) == 0

    printed = capsys.readouterr().out
    assert "damaged and passed over: step_20: model.safetensors is not what was written" in printed
    assert "going on after step 10" in printed


def test_an_unfinished_checkpoint_is_none(run, capsys):
    (begin(run / "checkpoints", 30) / "model.safetensors").write_bytes(b"half")
    resume.main([str(run), "--dry-run"])
    assert "going on after step 20" in capsys.readouterr().out


def test_a_run_whose_checkpoints_are_all_damaged_is_not_begun_anew_over_them(run):
    for step in (10, 20):
        (run / "checkpoints" / f"step_{step}" / "loop.json").unlink()
    message = refuse(str(run))
    assert "every checkpoint" in message
    assert "step_10: loop.json is missing" in message


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(run, capsys):
    import shutil

    shutil.rmtree(run / "checkpoints")
    (run / "latest").unlink()
    assert resume.main([str(run), "--dry-run"]) == 0
    assert "there is no checkpoint yet: the run begins again" in capsys.readouterr().out


def test_fewer_steps_than_were_done_are_refused(run):
    assert "steps is 15, but 20 are done" in refuse(str(run), "--steps", "15")


def test_a_run_that_stopped_at_its_goal_is_done_until_the_goal_changes(run, capsys):
    save(run, 30, "stopped_early")
    assert resume.main([str(run)]) == 0
    assert "this run is done: step 30" in capsys.readouterr().out
    resume.main([str(run), "--stop-at-reward", "0.9", "--dry-run"])
    assert "going on after step 30" in capsys.readouterr().out


def test_replay_of_a_run_without_records_says_how_to_get_them(run):
    with pytest.raises(ConfigError) as refused:
        replay.main([str(run)])
    assert "holds no recorded steps" in said(refused.value)
    assert "--record" in said(refused.value)


@pytest.mark.parametrize("steps", ["x", "3-", "", "-1"])
def test_steps_to_replay_that_are_no_steps_are_refused(run, steps):
    with pytest.raises(ConfigError, match="--steps must be a step or two"):
        replay.main([str(run), "--steps", steps])


def test_a_step_that_was_not_recorded_is_named_beside_those_that_were(run):
    batches = run / "rollouts"
    batches.mkdir(exist_ok=True)
    for step in (1, 2, 4):
        (batches / f"step_{step}.json").write_text("{}")
    with pytest.raises(ConfigError, match="step 9 is asked for; recorded are 1 to 4$"):
        replay.main([str(run), "--steps", "9", "--trainer-ranks", "1"])
    with pytest.raises(ConfigError, match="steps 2 to 4 are asked for; recorded are 1 to 4, without 3$"):
        replay.main([str(run), "--steps", "2-4", "--trainer-ranks", "1"])


@pytest.mark.parametrize("ranks", ["0", "two", "-1", ""])
def test_ranks_to_replay_with_that_are_no_number_are_refused(run, ranks):
    with pytest.raises(ConfigError, match="--trainer-ranks must be a whole number >= 1"):
        replay.main([str(run), f"--trainer-ranks={ranks}"])
