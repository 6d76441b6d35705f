"""A run over which everything goes wrong at random: graders raise and hang, engines and workers are killed."""

from __future__ import annotations

import random
import time

import pytest

from tests.road.conftest import EMBEDDED, SUMS

REWARD = """
import random
import time

def reward(reply, answer):
    chance = random.random()
    if chance < 0.02:
        raise RuntimeError("bad luck")
    if chance < 0.025:
        time.sleep(3600)
    if chance < 0.04:
        return None
    return sum(character.isdigit() for character in reply) / max(1, len(reply))
"""


@pytest.mark.real
@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, 1])
def test_three_hundred_steps_of_chaos_end_well_with_an_exact_ledger_and_something_learned(
    start, tmp_path, seed
):
    file = tmp_path / "reward.py"
    file.write_text(REWARD)
    run = start(
        *SUMS, *EMBEDDED, "--executor", "ray", "--env.reward", f"{file}:reward", "--env-timeout-s", "2",
        "--engines", "2", "--workers", "2", "--max-staleness", "2", "--prompts-per-step", "4", "--steps", "300",
        "--max-restarts", "1000", "--eval-data", "examples/tiny.jsonl", "--eval-prompts", "4", "--eval-every", "50",
        "--save-every", "20", "--seed", str(seed), "--lr", "3e-3",
    )  # fmt: skip
    chance = random.Random(seed)
    num_killed = 0
    next_death = 2
    while not run.has_ended:
        time.sleep(0.2)
        victims = run.processes("ray::AsyncActor")
        if victims and len(run.steps()) >= next_death:
            chance.choice(victims).kill()
            num_killed += 1
            next_death += chance.randint(1, 20)
    code, output = run.wait()

    assert code == 0, output
    assert num_killed > 10
    assert output.count("is there, after") > 10
    steps, account = run.steps(), run.ledger()
    assert [step["step"] for step in steps] == list(range(1, 301))
    for unit in ("prompts", "rollouts", "tokens"):
        settled = account[unit]["trained"] + sum(account[unit]["dropped"].values())
        assert account[unit]["dispatched"] == settled
    assert account["prompts"]["trained"] == 300 * 4
    assert {"reward_error", "abstained"} <= account["rollouts"]["dropped"].keys()
    assert max(step["staleness/max"] for step in steps) <= 2
    first, last = (sum(step["reward/mean"] for step in part) / 20 for part in (steps[:20], steps[-20:]))
    assert last > first + 0.2
    assert run.left_behind() == []
