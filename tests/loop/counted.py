"""An estimator with a state, for tests of what the loop gives it to see."""

from __future__ import annotations


class Counted:
    """An estimator that remembers how many rewards it has seen."""

    def __init__(self):
        self.seen = 0

    def advantages(self, batch):
        self.seen += len(batch.rewards)
        return batch.rewards - batch.rewards.mean()

    def state(self):
        return {"seen": self.seen}

    def restore(self, state):
        self.seen = state["seen"]
