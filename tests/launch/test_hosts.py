"""Hosts: what happens to weights and shares on their way between processes."""

from __future__ import annotations

import asyncio
import pickle
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from attrs import evolve

from molt_core.api.engine import Weights
from molt_core.errors import ActorLost, ObjectLost, RunError
from molt_core.experience import Outcome, Rollout, Segment, Window
from molt_core.experience.codec import encode
from molt_core.launch import engine_host as engine_host_module
from molt_core.launch.actors import engine_requests, threads_per_actor, trainer_requests
from molt_core.launch.calls import all_of, within
from molt_core.launch.engine_host import EngineHost
from molt_core.launch.local_executor import InProcessStore, LocalHandle
from molt_core.launch.prepared_model import PreparedModel, end_token_ids
from molt_core.launch.trainer_host import TrainerHost
from molt_core.loop.ports import ItemReference, RankShare
from tests.launch.test_model_process import plan_of


class RecordingEngine:
    """Notes what file it was given, and whether it could be read at that moment."""

    def __init__(self):
        self.loaded = []

    async def update_weights(self, weights, *, drain):
        self.loaded.append((weights.version, weights.path, weights.path.read_bytes(), drain))


def engine_host() -> tuple[EngineHost, RecordingEngine]:
    host = EngineHost.__new__(EngineHost)
    engine = RecordingEngine()
    host._store = InProcessStore()
    host._name = "engine-7"
    host._engine = engine
    return host, engine


@pytest.mark.parametrize("method", ["generate", "update_weights"])
def test_an_engine_that_can_not_serve_is_told_as_the_loss_of_its_actor(method, tmp_path):
    host, engine = engine_host()

    async def fail(*args, **options):
        raise RunError("EngineCore died", reason="engine_dead")

    setattr(engine, method, fail)
    asked = (None,) if method == "generate" else (Weights(version=1, path=tmp_path, num_bytes=0), None, True)
    with pytest.raises(ActorLost, match="EngineCore died") as caught:
        asyncio.run(getattr(host, method)(*asked))

    again = pickle.loads(pickle.dumps(caught.value))  # as on its way through Ray
    assert (again.actor, again.reason, str(again)) == ("engine-7", "engine_dead", "EngineCore died")


def test_an_engine_loads_the_file_where_it_sees_it(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"new")
    host, engine = engine_host()
    asyncio.run(host.update_weights(Weights(version=3, path=path, num_bytes=3), None, True))

    assert engine.loaded == [(3, path, b"new", True)]
    assert path.exists()


def test_an_engine_on_another_node_fetches_a_copy_that_is_gone_afterwards(tmp_path):
    host, engine = engine_host()
    weights = Weights(version=4, path=tmp_path / "of another node", num_bytes=3)
    asyncio.run(host.update_weights(weights, b"new", False))

    ((version, path, content, drain),) = engine.loaded
    assert (version, content, drain) == (4, b"new", False)
    assert not path.exists()


def test_an_engine_without_room_for_its_copy_is_lost_and_says_where(tmp_path, monkeypatch):
    full = SimpleNamespace(path=tmp_path / "full", remove=lambda: None)
    monkeypatch.setattr(engine_host_module, "SharedFolder", lambda: full)
    host, engine = engine_host()
    weights = Weights(version=4, path=tmp_path / "of another node", num_bytes=3)
    with pytest.raises(ActorLost, match=r"engine-7 can't keep the weights of version 4 .*full") as caught:
        asyncio.run(host.update_weights(weights, b"new", False))

    assert caught.value.actor == "engine-7"
    assert engine.loaded == []


class RecordingTrainer:
    def __init__(self):
        self.batches = []

    def step(self, batch):
        self.batches.append(batch)

    def publish(self, version, folder):
        path = folder / "weights.safetensors"
        path.write_bytes(b"published")
        return Weights(version=version, path=path, num_bytes=9)

    def stop(self): ...


def trainer_host() -> tuple[TrainerHost, RecordingTrainer]:
    model = PreparedModel(folder=Path("m"), max_length=64, end_token_ids=(2,))
    (request,) = trainer_requests(plan_of("--model", "tiny", "--max-tokens", "8"), model)
    host = TrainerHost(InProcessStore(), *request.args)
    trainer = RecordingTrainer()
    host._trainer = trainer
    return host, trainer


def test_a_rank_fetches_each_rollout_once_and_trains_on_its_segments():
    segment = Segment.from_turn([1], [2], [-1.0], [0])
    other = Segment.from_turn([3], [4, 5], [-1.0, -2.0], [0, 0])
    payload = encode(
        Rollout(
            rollout_id="0-0", group_id="0", segments=(segment, other), outcome=Outcome.FINISHED, reward=1.0
        )
    )
    item = ItemReference(
        payload=payload,
        segment=0,
        num_tokens=2,
        advantage=0.5,
        rollout_id="0-0",
        rollout_index=0,
        group_index=0,
        rollout_tokens=3,
        group_tokens=3,
    )
    share = RankShare(
        items=(item, evolve(item, segment=1)), window=Window(num_tokens=3, num_rollouts=1, num_groups=1)
    )
    host, trainer = trainer_host()
    assert host.fetch(share) == []
    host.step()

    assert [trained.segment for trained in trainer.batches[0].items] == [segment, other]
    assert {trained.advantage for trained in trainer.batches[0].items} == {0.5}


class ForgetfulStore(InProcessStore):
    """Whoever kept these is gone."""

    def get(self, reference):
        if reference == b"lost":
            raise ObjectLost("its owner died")
        return reference


def test_rollouts_that_are_gone_are_told_before_the_step_and_before_a_checkpoint(tmp_path):
    host, trainer = trainer_host()
    host._store = ForgetfulStore()
    item = partial(
        ItemReference, segment=0, num_tokens=2, advantage=0.5, group_index=0, rollout_tokens=1, group_tokens=3
    )
    items = tuple(
        item(payload=payload, rollout_id=f"0-{index}", rollout_index=index)
        for index, payload in enumerate((b"there", b"lost", b"lost", b"there"))
    )
    share = RankShare(items=items, window=Window(num_tokens=4, num_rollouts=4, num_groups=1))

    assert host.fetch(share) == [1, 2]
    assert trainer.batches == []
    assert host.keep_rollouts(tmp_path / "kept", {"0-0": b"there", "0-1": b"lost"}) == ["0-1"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["0-0.safetensors"]


@pytest.mark.parametrize("to_store", [False, True])
def test_weights_go_into_the_store_only_where_nodes_share_no_files(to_store):
    host, _ = trainer_host()
    published = host.publish(2, to_store)

    assert published.reference == (b"published" if to_store else None)
    assert published.weights.path.exists()
    host.stop()
    assert not published.weights.path.parent.exists()


def test_strictly_on_policy_engine_and_trainer_take_turns_on_all_cores():
    def run(*flags):
        return plan_of("--model", "tiny", "--max-tokens", "8", *flags).run_options()

    assert threads_per_actor(run(), 8) == 8
    assert threads_per_actor(run("--engines", "2"), 8) == 4
    assert threads_per_actor(run("--max-staleness", "1"), 8) == 4
    assert threads_per_actor(run("--threads", "3"), 8) == 3
    assert threads_per_actor(run("--max-staleness", "1"), 1) == 1


def test_engines_are_told_how_many_requests_may_come_at_once():
    plan = plan_of("--model", "tiny", "--max-tokens", "8", "--engines", "2", "--eval-prompts", "4")
    requests = engine_requests(plan, PreparedModel(folder=Path("m"), max_length=64, end_token_ids=(2,)))

    assert [request.args[1]["max_concurrency"] for request in requests] == [16, 16]
    assert len({request.args[1]["seed"] for request in requests}) == 2


def test_engines_have_room_for_an_evaluation_beside_training():
    plan = plan_of(
        "--model", "tiny", "--max-tokens", "8", "--eval-prompts", "30", "--max-staleness", "1",
        "--eval-concurrency", "10",
    )  # fmt: skip
    (request,) = engine_requests(plan, PreparedModel(folder=Path("m"), max_length=64, end_token_ids=(2,)))

    assert request.args[1]["max_concurrency"] == 2 * 32 + 10


def test_engines_and_ranks_are_told_how_many_likely_tokens_plugins_want():
    model = PreparedModel(folder=Path("m"), max_length=64, end_token_ids=(2,))
    for flags, wanted in (((), 0), (("--correction", "score-centering", "--correction.top-k", "7"), 7)):
        plan = plan_of("--model", "tiny", "--max-tokens", "8", *flags)
        (engine,), (rank,) = engine_requests(plan, model), trainer_requests(plan, model)
        assert engine.args[1]["top_logprobs"] == rank.args[1]["top_logprobs"] == wanted


def test_end_tokens_are_those_of_config_generation_config_and_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text('{"eos_token_id": 5}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 5]}')
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<end>"}}')
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": [{"id": 3, "content": "<end>"}]}')

    assert end_token_ids(tmp_path) == (3, 5, 7)


class Slow:
    async def answer(self):
        await asyncio.sleep(60)

    async def stop(self): ...


def test_an_actor_that_does_not_answer_is_named_with_the_question():
    with pytest.raises(RunError, match=r"engine-0 did not answer answer\(\) within 0.05 s"):
        asyncio.run(within(0.05, LocalHandle("engine-0", Slow()), "answer"))


def test_a_timeout_inside_an_actor_is_its_own_error_and_not_silence():
    class Impatient:
        async def answer(self):
            raise TimeoutError("the license server")

    with pytest.raises(TimeoutError, match="the license server"):
        asyncio.run(within(60, LocalHandle("engine-0", Impatient()), "answer"))


def test_the_first_error_of_several_calls_is_raised_itself():
    async def fail(after_s):
        await asyncio.sleep(after_s)
        raise RunError(f"failed after {after_s}")

    with pytest.raises(RunError, match="after 0.01"):
        asyncio.run(all_of([fail(0.5), fail(0.01)]))
