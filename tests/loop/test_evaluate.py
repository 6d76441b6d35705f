"""Evaluation samples each prompt k times, all of them, with a bound on what is in flight."""

from __future__ import annotations

from molt_core.api.run_options import RunOptions
from molt_core.loop.evaluate import eval_tasks, evaluate
from molt_core.testing import FakePolicy, FakeSampler, fake_tasks, run_virtual


class Counting(FakeSampler):
    """Knows how many rollouts ran at once."""

    running = most = 0

    async def sample(self, request):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await super().sample(request)
        finally:
            self.running -= 1


def test_every_prompt_is_sampled_and_no_more_at_once_than_asked():
    sampler = Counting(FakePolicy(), seconds=lambda request: 5.0)
    run = RunOptions(model="m", eval_samples=3, eval_concurrency=4, rollout_timeout_s=6.0)
    tasks = eval_tasks(fake_tasks(), 7)

    summaries = run_virtual(evaluate(tasks, sampler=sampler, run=run, max_tokens=8, label="eval"))

    assert [summary.rollout_id for summary in summaries] == [
        f"eval-{n}-{k}" for n in range(7) for k in range(3)
    ]
    assert sampler.most == 4
