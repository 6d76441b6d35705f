"""The process of one trainer rank: fetches its share by reference and trains on it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from molt_core.api.engine import Weights
from molt_core.api.executor import Store
from molt_core.api.trainer import StepResult, Trainer, TrainerContext
from molt_core.experience import Rollout, TrainBatch, TrainItem
from molt_core.experience.codec import decode
from molt_core.loop.ports import RankShare
from molt_core.plan.plan import Plan


class TrainerHost:
    def __init__(self, store: Store, plan_json: str, context: Mapping[str, Any]) -> None:
        self._store = store
        self._plan = Plan.from_json(plan_json)
        self._context = TrainerContext(**context)
        self._trainer: Trainer | None = None

    def find_rendezvous(self) -> str:
        """A free port of this node, for rank 0. Loopback unless the ranks are on several nodes."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"tcp://127.0.0.1:{probe.getsockname()[1]}"

    def start(self, rendezvous: str) -> None:
        context = evolve(self._context, rendezvous=rendezvous)
        loss = self._plan.one("losses").build()
        self._trainer = self._plan.one("trainers").build(context, loss)
        self._trainer.start()

    def step(self, share: RankShare) -> StepResult:
        rollouts: dict[int, Rollout] = {}
        items = []
        for item in share.items:
            if item.rollout_index not in rollouts:
                rollouts[item.rollout_index] = decode(self._store.get(item.payload))
            items.append(
                TrainItem(
                    segment=rollouts[item.rollout_index].segments[item.segment],
                    advantage=item.advantage,
                    rollout_index=item.rollout_index,
                    group_index=item.group_index,
                )
            )
        return self._live.step(TrainBatch(items=tuple(items), window=share.window))

    def publish(self, version: int, folder: Path) -> Weights | None:
        return self._live.publish(version, folder)

    def save(self, folder: Path) -> None:
        self._live.save(folder)

    def load(self, folder: Path) -> None:
        self._live.load(folder)

    def export(self, folder: Path) -> None:
        self._live.export(folder)

    def stop(self) -> None:
        if self._trainer is not None:
            self._trainer.stop()
            self._trainer = None

    @property
    def _live(self) -> Trainer:
        assert self._trainer is not None, "start() comes first"
        return self._trainer
