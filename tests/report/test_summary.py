"""The report of a run: from its files alone, whatever of them there is."""

from __future__ import annotations

from molt_core.report.summary import report_lines

PLAN = {"run": {"model": "tiny", "dtype": "float32", "steps": 5}, "parts": {"trainers": [{}]}}


def step(number: int, reward: float, **more: float) -> dict[str, float]:
    return {
        "step": number, "reward/mean": reward, "rollout/length_mean": 8.0, "rollout/truncated_rate": 0.25,
        "staleness/max": 1.0, "time/step_s": 2.0, "time/generate_s": 1.0, "time/train_s": 0.5, "time/sync_s": 0.25,
        "time/wait_rollouts_s": 1.0, "time/wait_trainer_s": 0.0, "tokens/trained_per_s": 100.0,
        "tokens/sampled_per_s": 120.0, "policy/grad_norm": 1.0,
    } | more  # fmt: skip


def evaluation(after: int, oldest: int, newest: int, passed: float) -> dict[str, float]:
    return {"step": after, "version": oldest, "newest_version": newest, "eval/sums/pass@1": passed}


def test_rewards_times_evaluations_and_ledger_are_told():
    rewards = [0.0, 0.0, 0.3, 0.9, 0.6]
    metrics = [evaluation(0, 0, 0, 0.125), *(step(n, reward) for n, reward in enumerate(rewards, 1))]
    metrics.insert(4, evaluation(3, 3, 4, 0.5))
    counts = {"dispatched": 9, "trained": 6, "dropped": {"timeout": 1, "failed": 2}, "pending": 0}
    ledger = [{"step": 4, "prompts": {}}, {"step": 5, "prompts": counts, "rollouts": counts}]

    assert report_lines(PLAN, metrics, ledger, ["step_4", "step_5"], 120) == [
        "model       tiny (float32)",
        "steps       5 of 5 in 10s",
        "reward      0.100 -> 0.600  ▁▁▃█▆  (first and last 3 steps)",
        "rollouts    8.0 tokens, 25% truncated, staleness at most 1",
        "seconds     generate 1.00, train 0.50, sync 0.25, wait for rollouts 1.00, wait for trainer 0.00, step 2.00  "
        "(means of...",
        "tokens/s    100 trained, 120 sampled",
        "evaluation  after step 0, version 0: sums/pass@1 0.125",
        "            after step 3, version 3-4: sums/pass@1 0.500",
        "ledger      9 prompts = 6 trained + 3 dropped + 0 pending  (2 failed, 1 timeout)",
        "            9 rollouts = 6 trained + 3 dropped + 0 pending  (2 failed, 1 timeout)",
        "checkpoints step_4, step_5",
    ]


def test_actors_that_died_are_counted_by_name():
    lost = [{"step": 1, "actor": name, "lost": "killed"} for name in ("worker-0", "engine-1", "worker-0")]
    lines = report_lines(PLAN, [step(1, 0.5), *lost, step(2, 0.5)], [], [], 120)

    assert "steps       2 of 5 in 4s" in lines
    assert "lost        engine-1 1, worker-0 2  (times that it died; what it was at was done again)" in lines


def test_steps_that_are_not_finite_are_counted_and_spoil_no_mean():
    metrics = [step(1, 0.5), step(2, float("nan"), **{"policy/grad_norm": float("inf")}), step(3, 0.5)]
    lines = report_lines(PLAN, metrics, [], [], 120)

    assert "steps       3 of 5 in 6s, 1 skipped as not finite" in lines
    assert any(line.startswith("reward      0.500 -> 0.500") for line in lines)


def test_a_run_that_was_killed_before_its_first_step_has_a_report():
    assert report_lines(PLAN, [], [], [], 120) == ["model       tiny (float32)", "steps       0 of 5 in 0s"]


def test_an_evaluation_has_one_too():
    plan = PLAN | {"parts": {}}

    assert report_lines(plan, [evaluation(0, 0, 0, 0.75)], [], [], 120)[1:] == [
        "evaluation  after step 0, version 0: sums/pass@1 0.750"
    ]


def test_of_many_evaluations_the_first_and_the_last_are_shown():
    lines = report_lines(PLAN, [evaluation(n, n, n, 0.5) for n in range(40)], [], [], 120)

    shown = [line[12:].split(",")[0] for line in lines if "after step" in line or "more" in line]
    assert shown[5:8] == ["after step 5", "... 28 more in metrics.jsonl", "after step 34"]
    assert len(shown) == 13


def test_curves_are_left_out_where_the_terminal_knows_ascii_only():
    lines = report_lines(PLAN, [step(1, 0.5), step(2, 1.0)], [], [], 120, plain=True)

    assert all(line.isascii() for line in lines)
