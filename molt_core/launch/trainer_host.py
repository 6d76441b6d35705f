"""The process of one trainer rank: fetches its share by reference and trains on it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from molt_core.api.engine import Weights
from molt_core.api.executor import Store
from molt_core.api.facts import TOKEN_ADVANTAGES
from molt_core.api.trainer import StepResult, Trainer, TrainerContext, TrainerParts
from molt_core.errors import ObjectLost
from molt_core.experience import Rollout, TrainBatch, TrainItem
from molt_core.experience.codec import decode
from molt_core.experience.segment import FloatArray
from molt_core.launch.record import read_share, weights_digest, write_batch
from molt_core.launch.shared_memory import SharedFolder
from molt_core.loop.ports import RankShare
from molt_core.plan.plan import Plan


@frozen(kw_only=True)
class PublishedWeights:
    """Where engines find the weights of a version."""

    weights: Weights
    reference: Any
    """The file's bytes in the store; None when all engines see the file."""
    digest: str = ""
    """SHA-256 of the tensors, where it was asked for."""


class TrainerHost:
    def __init__(self, store: Store, plan_json: str, context: Mapping[str, Any]) -> None:
        self._store = store
        self._plan = Plan.from_json(plan_json)
        self._context = TrainerContext(**context)
        self._trainer: Trainer | None = None
        self._shared: SharedFolder | None = None
        self._share: RankShare | None = None
        self._fetched: dict[int, bytes] = {}

    def find_rendezvous(self) -> str:
        """A free port of this node, for rank 0. Loopback unless the actors are on several nodes."""
        address = self._store.node_address()
        with socket.socket() as probe:
            probe.bind((address, 0))
            return f"tcp://{address}:{probe.getsockname()[1]}"

    def start(self, rendezvous: str) -> None:
        context = evolve(self._context, rendezvous=rendezvous)
        loss = self._plan.one("losses").build()
        parts = TrainerParts(
            loss=loss,
            correction=self._plan.optional("corrections"),
            estimator=self._plan.one("estimators").build() if TOKEN_ADVANTAGES in self._plan.facts else None,
        )
        self._trainer = self._plan.one("trainers").build(context, parts)
        self._trainer.start()

    def fetch(self, share: RankShare) -> list[int]:
        """Bring the share here, before any rank begins a step that all take part in.

        Returns rollouts that are gone, by index.
        """
        self._share = share
        payloads = {item.rollout_index: item.payload for item in share.items}
        got = {index: self._get(payload) for index, payload in payloads.items()}
        self._fetched = {index: data for index, data in got.items() if data is not None}
        return [index for index in payloads if index not in self._fetched]

    def step(self, record: Path | None = None) -> StepResult:
        """Train on what was fetched; first keep it in `record`, where given."""
        assert self._share is not None, "fetch() comes first"
        share, encoded = self._share, self._fetched
        self._share, self._fetched = None, {}
        if record is not None:
            write_batch(record, share, encoded)
        return self._train(share, encoded)

    def replay(self, folder: Path, step: int) -> StepResult:
        """Train on what `step` has kept, spread over the ranks that there are now."""
        share = read_share(folder, step, self._context.rank, self._context.world_size)
        return self._train(share, {item.rollout_index: item.payload for item in share.items})

    def _train(self, share: RankShare, encoded: Mapping[int, bytes]) -> StepResult:
        rollouts: dict[int, Rollout] = {}
        last = {item.rollout_index: item.segment for item in share.items}
        items = []
        for item in share.items:
            if item.rollout_index not in rollouts:
                rollouts[item.rollout_index] = decode(encoded[item.rollout_index])
            rollout = rollouts[item.rollout_index]
            items.append(
                TrainItem(
                    segment=rollout.segments[item.segment],
                    segment_index=item.segment,
                    token_rewards=token_rewards(
                        rollout, item.segment, item.advantage, ends=last[item.rollout_index] == item.segment
                    ),
                    advantage=item.advantage,
                    rollout_index=item.rollout_index,
                    group_index=item.group_index,
                    rollout_tokens=item.rollout_tokens,
                    group_tokens=item.group_tokens,
                )
            )
        return self._live.step(TrainBatch(items=tuple(items), window=share.window))

    def publish(self, version: int, to_store: bool, with_digest: bool = False) -> PublishedWeights | None:
        """Write the weights; also into the store, if engines may be on nodes that don't see the file."""
        self._shared = self._shared or SharedFolder()
        weights = self._live.publish(version, self._shared.path)
        if weights is None:
            return None
        reference = self._store.put(weights.path.read_bytes()) if to_store else None
        digest = weights_digest(weights.path) if with_digest else ""
        return PublishedWeights(weights=weights, reference=reference, digest=digest)

    def save(self, folder: Path) -> None:
        self._live.save(folder)

    def load(self, folder: Path) -> None:
        self._live.load(folder)

    def keep_rollouts(self, folder: Path, payloads: Mapping[str, Any]) -> list[str]:
        """Write rollouts that wait to be trained, by name. Returns the names of those that are gone."""
        folder.mkdir()
        lost = []
        for name, payload in payloads.items():
            if (data := self._get(payload)) is None:
                lost.append(name)
            else:
                (folder / f"{name}.safetensors").write_bytes(data)
        return lost

    def fetch_rollouts(self, folder: Path, names: Sequence[str]) -> dict[str, Any]:
        """The inverse: into the store again. Returns where they are."""
        return {name: self._store.put((folder / f"{name}.safetensors").read_bytes()) for name in names}

    def export(self, folder: Path) -> None:
        self._live.export(folder)

    def stop(self) -> None:
        if self._shared is not None:
            self._shared.remove()
            self._shared = None
        if self._trainer is not None:
            self._trainer.stop()
            self._trainer = None

    def _get(self, payload: Any) -> bytes | None:
        try:
            return self._store.get(payload)
        except ObjectLost:
            return None

    @property
    def _live(self) -> Trainer:
        assert self._trainer is not None, "start() comes first"
        return self._trainer


def token_rewards(rollout: Rollout, segment: int, total: float, *, ends: bool) -> FloatArray:
    """[n] float32, rewards of the sampled tokens of one segment.

    Args:
        total: what all tokens of the rollout sum to.
        ends: the rollout's last trained token is in this segment; what turn rewards leave goes there.
    """
    sampled = rollout.segments[segment].sampled
    rewards = np.zeros(len(sampled), np.float32)
    for turn in rollout.turn_rewards:
        if turn.segment == segment:
            rewards[turn.token] += turn.reward
    trained = rewards[sampled]
    if ends:
        trained[-1] += total - sum(turn.reward for turn in rollout.turn_rewards)
    return trained
