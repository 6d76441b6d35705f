"""What weight updates do to an engine: to requests in flight, to its caches, and when they fail."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from attrs import evolve

from molt_core.api.engine import Engine, Weights
from molt_core.testing.engine_contract.traffic import (
    MAX_TOP_LOGPROBS,
    PAUSE_S,
    assert_agree,
    expected,
    prompts,
    publish,
    replies,
    replies_while_updating,
    request,
)
from molt_core.testing.tiny_model import TinyModel


class UpdateContract:
    async def test_an_update_in_flight_splits_replies_exactly_where_the_weights_changed(
        self, engine: Engine, model: TinyModel
    ) -> None:
        said = await replies_while_updating(engine, model, drain=False)
        assert any(len(set(reply.versions)) > 1 for reply in said)
        assert all((np.diff(reply.versions) >= 0).all() for reply in said)
        # under the new weights with the whole history
        assert_agree(model, prompts(), said)

    async def test_a_drained_update_leaves_one_version_in_each_reply(
        self, engine: Engine, model: TinyModel
    ) -> None:
        said = await replies_while_updating(engine, model, drain=True)
        assert all(len(set(reply.versions)) == 1 for reply in said)
        assert_agree(model, prompts(), said)

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    async def test_the_likeliest_tokens_are_those_of_transformers_across_updates_in_flight(
        self, engine: Engine, model: TinyModel, temperature: float
    ) -> None:
        numbers = [0, 1, 5, MAX_TOP_LOGPROBS] * 2
        asked = [
            evolve(request(prompt, temperature=temperature), top_logprobs=number)
            for prompt, number in zip(prompts(), numbers, strict=True)
        ]
        running = asyncio.create_task(replies(engine, asked))
        await asyncio.sleep(PAUSE_S)
        await publish(engine, model)
        for prompt, number, reply in zip(prompts(), numbers, await running, strict=True):
            if number == 0:
                assert reply.top_ids is None
                assert reply.top_logprobs is None
                continue
            assert reply.top_ids is not None
            assert reply.top_logprobs is not None
            assert reply.top_ids.shape == reply.top_logprobs.shape == (len(reply.token_ids), number)
            for version in np.unique(reply.versions):
                mine = reply.versions == version
                rows = expected(model, prompt, reply, int(version), temperature=temperature)[mine]
                own = np.take_along_axis(rows, reply.top_ids[mine].astype(np.int64), -1)
                assert np.abs(own - reply.top_logprobs[mine]).max() < 1e-3
                # equally likely tokens may change places
                assert np.abs(-np.sort(-rows)[:, :number] - reply.top_logprobs[mine]).max() < 1e-3
            assert all(len(set(ids)) == number for ids in reply.top_ids.tolist())

    async def test_stop_texts_are_exact_across_updates_in_flight(
        self, engine: Engine, model: TinyModel
    ) -> None:
        stops = tuple(a + b for a in "abcd" for b in "abcdefgh")
        said = await replies_while_updating(engine, model, drain=False, stop=stops)
        for reply in said:
            texts = [model.tokenizer.decode(reply.token_ids[: n + 1]) for n in range(len(reply.token_ids))]
            hits = [n + 1 for n, text in enumerate(texts) if any(stop in text for stop in stops)]
            assert hits in ([], [len(reply.token_ids)])
            if hits:
                assert reply.finish_reason == "stop"
        assert_agree(model, prompts(), said)

    async def test_a_prompt_seen_before_an_update_is_computed_anew_after_it(
        self, engine: Engine, model: TinyModel
    ) -> None:
        prompt = (prompts()[7] * 20)[:300]
        for _ in range(2):
            reply = await engine.generate(request(prompt, max_tokens=8))
            assert_agree(model, [prompt], [reply])
            weights = await publish(engine, model)
        reply = await engine.generate(request(prompt, max_tokens=8))
        assert set(reply.versions) == {weights.version}
        assert_agree(model, [prompt], [reply])

    @pytest.mark.parametrize("wrong", ["missing", "unknown", "of another shape"])
    async def test_weights_that_do_not_fit_are_refused_by_name_and_change_nothing(
        self, engine: Engine, model: TinyModel, wrong: str
    ) -> None:
        from safetensors.torch import save_file

        current = await publish(engine, model)
        version = model.next_version()
        tensors = model.tensors(version)
        name = "model.layers.1.self_attn.k_proj.weight"
        if wrong == "missing":
            del tensors[name]
        elif wrong == "unknown":
            tensors[name := "model.layers.9.weight"] = tensors["model.norm.weight"].clone()
        else:
            tensors[name] = tensors[name][:-1].contiguous()
        path = model.folder.parent / "wrong.safetensors"
        save_file(tensors, path)
        with pytest.raises(ValueError, match=f"1 {wrong}: {name}"):
            await engine.update_weights(Weights(version=version, path=path, num_bytes=0), drain=False)
        reply = await engine.generate(request(prompts()[0]))
        assert set(reply.versions) == {current.version}
        assert_agree(model, prompts()[:1], [reply])
