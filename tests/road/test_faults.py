"""What goes wrong in a run: a clear end in seconds, the state saved, every process gone."""

from __future__ import annotations

import pytest

from tests.road.conftest import DIGITS, EMBEDDED, LONG, SUMS

pytestmark = pytest.mark.real


def assert_saved(run, output):
    step = int((run.folder / "latest").resolve().name.removeprefix("step_"))
    assert step >= len(run.steps()) - 1 > 0
    assert (run.folder / "latest" / "model.safetensors").is_file()
    assert str(run.folder / "checkpoints") in output
    for unit in ("prompts", "rollouts", "tokens"):
        account = run.ledger()[unit]
        assert account["dispatched"] == account["trained"] + sum(account["dropped"].values())


def test_ctrl_c_saves_and_ends_with_130(start):
    run = start(*DIGITS, *EMBEDDED, *LONG)
    run.wait_for_steps(2)
    run.interrupt()
    code, output = run.wait()

    assert code == 130, output
    assert "interrupted" in output
    assert "Traceback" not in output
    assert_saved(run, output)
    assert run.left_behind() == []


ENGINE, TRAINER, ENGINE_HOST_OR_WORKER = "VLLM::EngineCore", "ray::BlockingActor", "ray::AsyncActor"


def test_killed_engines_and_workers_are_started_again_and_nothing_is_counted_twice(start):
    run = start("examples/tiny.toml", *LONG, "--max-staleness", "1", "--partial")
    run.wait_for_steps(2)
    (engine,) = run.processes(ENGINE)
    (worker,) = (each for each in run.processes(ENGINE_HOST_OR_WORKER) if each != engine.parent())
    engine.kill()
    worker.kill()
    run.wait_for_steps(len(run.steps()) + 4)
    run.interrupt()
    code, output = run.wait()

    assert code == 130, output
    for name in ("engine-0", "worker-0"):
        assert output.count(f"{name} is lost, started again in 2s: {name}") == 1, output
        assert output.count(f"{name} is there, after") == 1
    assert "Traceback" not in output
    assert_saved(run, output)
    trained = run.ledger()["rollouts"]["trained"]
    assert trained == sum(32 for step in run.steps())
    assert max(step["staleness/max"] for step in run.steps()) <= 1
    assert run.left_behind() == []


@pytest.mark.parametrize(
    ("victim", "named", "flags"),
    [(TRAINER, "trainer-0", ()), (ENGINE_HOST_OR_WORKER, "", ("--max-restarts", "0"))],
)
def test_a_loss_that_can_not_be_made_good_ends_the_run_with_its_name(start, victim, named, flags):
    run = start(*DIGITS, *EMBEDDED, "--executor", "ray", *LONG, *flags)
    run.wait_for_steps(2)
    run.processes(victim)[0].kill()
    code, output = run.wait()

    assert code == 4, output
    assert f"error: {named}" in output
    assert "died" in output
    assert "Traceback" not in output
    if named != "trainer-0":
        assert_saved(run, output)
    assert run.left_behind() == []


REWARD = """
def reward(reply, answer, question=None, **columns):
    {body}
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('no such thing')", "reward_error: KeyError: 'no such thing'"),
        ("return None", "abstained: the grader returned None"),
        ("return float('nan')", "reward_not_finite: the grader returned nan"),
        ("return 'good'", "reward_error: the grader returned 'good' of type str"),
    ],
)
def test_a_reward_that_is_never_one_ends_the_run_with_the_cause(start, tmp_path, body, said):
    file = tmp_path / "reward.py"
    file.write_text(REWARD.format(body=body))
    run = start(*SUMS, *EMBEDDED, "--env.reward", f"{file}:reward", *LONG)
    code, output = run.wait()

    assert code == 4, output
    assert said in output
    if "raise" in body:
        assert f"({file}:3)" in output
    assert set(run.ledger()["rollouts"]["dropped"]) >= {said.split(":")[0]}


def test_a_reward_that_fails_now_and_then_costs_those_rollouts_only(start, tmp_path):
    file = tmp_path / "reward.py"
    file.write_text(
        "CALLS = []\n\ndef reward(reply):\n    CALLS.append(reply)\n    return 1 / (len(CALLS) % 4)\n"
    )
    run = start(*SUMS, *EMBEDDED, "--env.reward", f"{file}:reward", "--steps", "3")
    code, output = run.wait()

    assert code == 0, output
    dropped = run.ledger()["rollouts"]["dropped"]
    assert dropped["reward_error"] == run.ledger()["rollouts"]["dispatched"] // 4
    assert sum(step.get("rollout/dropped/reward_error", 0) for step in run.steps()) == dropped["reward_error"]


def test_a_step_that_is_not_finite_is_skipped_counted_and_ends_the_run_when_it_stays(start, tmp_path):
    file = tmp_path / "reward.py"
    # finite as a reward, infinite as a float32 advantage
    file.write_text("def reward(reply):\n    return 1e300 * (len(reply) % 2)\n")
    run = start(*SUMS, *EMBEDDED, "--env.reward", f"{file}:reward", "--estimator", "dr_grpo", "--steps", "50")
    code, output = run.wait()

    assert code == 4, output
    assert "3 steps in a row had a loss or gradient that is not finite" in output
    assert run.ledger()["rollouts"]["dropped"]["non_finite_step"] == 3 * 8
    assert not (run.folder / "checkpoints").exists(), "nothing was learned, so nothing is saved"
