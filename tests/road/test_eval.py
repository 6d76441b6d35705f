"""`molt eval` with a real model: every row k times, failures counted, no trainer, nothing left behind."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from molt_core.report.json_lines import read_json_lines

pytestmark = pytest.mark.real

EMBEDDED = (
    "--model", "tiny", "--executor", "local", "--engine", "transformers", "--dtype", "float32",
    "--max-tokens", "6", "--max-length", "128",
)  # fmt: skip
REWARD = """\
import time

def uneven(reply, answer):
    if answer == "2":
        raise KeyError("no such answer")
    return None if answer == "3" else 1.0 if answer == "1" else 0.0

def slow(reply, answer):
    if answer != "0":
        time.sleep(600)
    return 1.0
"""

AGENT = """\
from molt_core.api.agent import Result

async def solve(task, session):
    for number in range(task["n"]):
        await session.chat([{"role": "user", "content": f"{number}?"}])
    return Result(reward=1.0 / task["n"], info={"asked": task["n"]})
"""


@pytest.fixture
def rows(tmp_path: Path) -> tuple[str, ...]:
    data = "".join(json.dumps({"prompt": f"{number}?", "answer": str(number)}) + "\n" for number in range(5))
    (tmp_path / "rows.jsonl").write_text(data)
    (tmp_path / "reward.py").write_text(REWARD)
    return ("--env", "verify", "--data", str(tmp_path / "rows.jsonl"), "--env.reward")


def test_every_row_is_answered_k_times_and_failures_are_no_zeros(start, rows, tmp_path):
    (tmp_path / "train.toml").write_text(
        'lr = 1.0\nsteps = 7\ntrainer = "not-installed"\nestimator = "nor-this"\n'
    )
    run = start(
        str(tmp_path / "train.toml"), *EMBEDDED, *rows, f"{tmp_path}/reward.py:uneven", "--eval-samples", "4",
        "--eval-temperature", "1", "--eval-concurrency", "3", command="eval",
    )  # fmt: skip
    code, output = run.wait()

    assert code == 0, output
    assert "note: not used by molt eval: lr, steps, trainer, estimator" in output
    episodes = read_json_lines(run.folder / "episodes.jsonl")
    assert sorted((each["task_id"], each["sample"]) for each in episodes) == [
        (f"eval/{number:06d}", sample) for number in range(5) for sample in range(4)
    ]
    of_task = {
        number: [each for each in episodes if each["task_id"] == f"eval/{number:06d}"] for number in range(5)
    }
    assert {each["reward"] for each in of_task[1]} == {1.0}
    assert {(each["outcome"], each["reason"], each["reward"]) for each in of_task[2]} == {
        ("failed", "reward_error", None)
    }
    assert {each["outcome"] for each in of_task[3]} == {"abstained"}
    assert len({each["reply"] for each in of_task[0]}) > 1, "samples differ"
    for each in episodes:
        prompt = f"<|im_start|>user\n{int(each['task_id'][-6:])}?<|im_end|>\n<|im_start|>assistant\n"
        (segment,) = each["segments"]
        assert segment.startswith(prompt)
        assert len(segment) > len(prompt)
        assert 0 < each["num_tokens"] <= 6
    (metrics,) = read_json_lines(run.folder / "metrics.jsonl")
    assert metrics["eval/verify/pass@1"] == metrics["eval/verify/pass@4"] == pytest.approx(1 / 3)
    assert metrics["eval/verify/failed_rate"] == metrics["eval/verify/abstained_rate"] == pytest.approx(0.2)
    assert "4 of 20 episodes: 4 reward_error" in output
    assert "no such answer" in output
    assert set(json.loads((run.folder / "plan.json").read_text())["parts"]) == {
        "envs", "engines", "executors", "models",
    }  # fmt: skip
    assert run.left_behind() == []


def test_an_agent_is_evaluated(start, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1?", "n": 1}\n{"prompt": "2?", "n": 2}\n')
    (tmp_path / "agent.py").write_text(AGENT)
    run = start(
        *EMBEDDED,
        "--data",
        str(tmp_path / "rows.jsonl"),
        "--agent",
        f"{tmp_path}/agent.py:solve",
        command="eval",
    )
    code, output = run.wait()

    assert code == 0, output
    one, two = sorted(read_json_lines(run.folder / "episodes.jsonl"), key=lambda each: each["task_id"])
    assert (one["reward"], one["num_segments"], two["reward"], two["num_segments"]) == (1.0, 1, 0.5, 2)
    assert one["info"]["asked"] == 1.0
    assert [segment.count("<|im_start|>user") for segment in two["segments"]] == [1, 1]
    assert "eval/solve/pass@1" in read_json_lines(run.folder / "metrics.jsonl")[0]


def test_an_environment_of_several_turns_is_evaluated(start):
    run = start(
        *EMBEDDED, "--env", "gymnasium", "--env.id", "FrozenLake-v1", "--env.max-turns", "2",
        "--env.instructions", "Act.", "--env.invalid-reward", "-1", "--eval-prompts", "3",
        "--max-length", "512", command="eval",
    )  # fmt: skip
    code, output = run.wait()

    assert code == 0, output
    episodes = read_json_lines(run.folder / "episodes.jsonl")
    assert len(episodes) == 3
    for each in episodes:
        assert "[S]FFF" in each["segments"][0]
        assert each["info"]["turns"] in (1.0, 2.0)
        assert each["reward"] == -each["info"]["invalid_actions"]


def test_nothing_graded_is_a_failure(start, rows, tmp_path):
    (tmp_path / "reward.py").write_text("def broken(reply, answer):\n    raise ValueError('always')\n")
    run = start(*EMBEDDED, *rows, f"{tmp_path}/reward.py:broken", "--eval-prompts", "2", command="eval")
    code, output = run.wait()

    assert code == 4
    assert "not one episode could be graded" in output
    assert len(read_json_lines(run.folder / "episodes.jsonl")) == 2


def test_interrupted_it_leaves_what_it_has(start, rows, tmp_path):
    run = start(*EMBEDDED, *rows, f"{tmp_path}/reward.py:slow", command="eval")
    path, deadline = run.folder / "episodes.jsonl", time.monotonic() + 120
    while not (path.exists() and read_json_lines(path)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    run.interrupt()
    code, output = run.wait()

    assert code == 130, output
    assert [each["reward"] for each in read_json_lines(path)] == [1.0]
    assert run.left_behind() == []
