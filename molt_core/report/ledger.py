"""The ledger: dispatched = trained + dropped (by reason) + pending, at every moment.

In go counts of prompts, rollouts and sampled tokens as they are dispatched, trained or
dropped; out come ledger.jsonl and the metrics of drops. Pending is what is left, so a thing
that is settled twice, or was never dispatched, shows at once. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from molt_core.errors import RunError
from molt_core.report.json_lines import JsonLines

UNITS: Final = ("prompts", "rollouts", "tokens")


@define
class Account:
    """Counts of one unit since the start of the run."""

    dispatched: int = 0
    trained: int = 0
    dropped: dict[str, int] = field(factory=dict)

    @property
    def pending(self) -> int:
        return self.dispatched - self.trained - sum(self.dropped.values())


class Ledger:
    """Counts of a run.

    Prompts and rollouts are dispatched when they start. Tokens are dispatched when they have
    been sampled, that is when their group comes back.

    Args:
        path: file to append a line to at each `write`; None keeps the counts in memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lines = JsonLines(path) if path else None
        self._accounts = {unit: Account() for unit in UNITS}
        self._written_drops: dict[str, int] = {}

    def dispatch(self, *, num_prompts: int = 0, num_rollouts: int = 0, num_tokens: int = 0) -> None:
        for account, count in self._each(num_prompts, num_rollouts, num_tokens):
            account.dispatched += count

    def train(self, *, num_prompts: int = 0, num_rollouts: int = 0, num_tokens: int = 0) -> None:
        """Raises RunError when more is settled than was dispatched."""
        for account, count in self._each(num_prompts, num_rollouts, num_tokens):
            account.trained += count
        self.check()

    def drop(self, reason: str, *, num_prompts: int = 0, num_rollouts: int = 0, num_tokens: int = 0) -> None:
        """Raises RunError when more is settled than was dispatched."""
        for account, count in self._each(num_prompts, num_rollouts, num_tokens):
            if count:
                account.dropped[reason] = account.dropped.get(reason, 0) + count
        self.check()

    def drop_pending(self, reason: str) -> None:
        """The run ends: nothing that is still pending will be trained."""
        pending = {f"num_{unit}": account.pending for unit, account in self._accounts.items()}
        self.drop(reason, **pending)

    def check(self, *, num_prompts: int | None = None, num_rollouts: int | None = None) -> None:
        """Compare with what the loop holds, where given; pending is never negative.

        Raises:
            RunError: the books don't balance.
        """
        held = {"prompts": num_prompts, "rollouts": num_rollouts}
        for unit, account in self._accounts.items():
            wanted = held.get(unit)
            if account.pending < 0 or (wanted is not None and wanted != account.pending):
                wanted_text = "0 or more" if wanted is None else str(wanted)
                raise RunError(
                    f"the ledger does not balance: {unit} dispatched {account.dispatched}, trained "
                    f"{account.trained}, dropped {account.dropped}; pending is {account.pending}, "
                    f"wanted {wanted_text}",
                    reason="ledger",
                )

    def drop_metrics(self) -> dict[str, float]:
        """`rollout/dropped/<reason>`: rollouts dropped since the last `write`."""
        dropped = self._accounts["rollouts"].dropped
        since = {reason: count - self._written_drops.get(reason, 0) for reason, count in dropped.items()}
        return {f"rollout/dropped/{reason}": float(count) for reason, count in since.items() if count}

    def write(self, step: int) -> None:
        """Append the counts as of the end of `step`."""
        self._written_drops = dict(self._accounts["rollouts"].dropped)
        if self._lines:
            self._lines.write({"step": step, **self.as_dict()})

    def close(self) -> None:
        if self._lines:
            self._lines.close()

    def as_dict(self) -> dict[str, Any]:
        """`{unit: {dispatched, trained, dropped: {reason: count}, pending}}`, JSON."""
        return {
            unit: {
                "dispatched": account.dispatched,
                "trained": account.trained,
                "dropped": dict(account.dropped),
                "pending": account.pending,
            }
            for unit, account in self._accounts.items()
        }

    def restore(self, counts: Mapping[str, Any]) -> None:
        """Go on from `as_dict` of an earlier run."""
        for unit in UNITS:
            saved = counts[unit]
            self._accounts[unit] = Account(saved["dispatched"], saved["trained"], dict(saved["dropped"]))
        self._written_drops = dict(self._accounts["rollouts"].dropped)
        self.check()

    def _each(self, num_prompts: int, num_rollouts: int, num_tokens: int) -> list[tuple[Account, int]]:
        counts = (num_prompts, num_rollouts, num_tokens)
        if min(counts) < 0:
            raise ValueError(f"counts must not be negative, got {dict(zip(UNITS, counts, strict=True))}")
        return [(self._accounts[unit], count) for unit, count in zip(UNITS, counts, strict=True)]
