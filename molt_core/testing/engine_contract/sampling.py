"""What an engine samples and how it is bounded: distribution, limits, stop texts, schemas."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from attrs import evolve

from molt_core.api.engine import Engine, Generation
from molt_core.testing.engine_contract.traffic import (
    MAX_LENGTH,
    assert_agree,
    busy,
    differences,
    expected,
    prompts,
    publish,
    replies,
    request,
)
from molt_core.testing.tiny_model import END_TOKEN_ID, VOCAB_SIZE, TinyModel


class SamplingContract:
    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    async def test_logprobs_agree_with_transformers_before_and_after_an_update(
        self, engine: Engine, model: TinyModel, temperature: float
    ) -> None:
        for _ in range(2):
            said = await replies(engine, [request(prompt, temperature=temperature) for prompt in prompts()])
            found = [
                differences(model, prompt, reply, temperature=temperature)
                for prompt, reply in zip(prompts(), said, strict=True)
            ]
            assert np.concatenate(found).mean() < 1e-4
            assert np.concatenate(found).max() < 1e-3
            await publish(engine, model)

    async def test_temperature_0_takes_the_most_likely_token_with_its_unscaled_logprob(
        self, engine: Engine, model: TinyModel
    ) -> None:
        prompt = prompts()[3]
        reply = await engine.generate(request(prompt, max_tokens=8, temperature=0.0))
        rows = expected(model, prompt, reply, int(reply.versions[0]))
        assert reply.token_ids.tolist() == rows.argmax(-1).tolist()
        assert_agree(model, [prompt], [reply])

    async def test_generation_config_of_the_model_changes_nothing(self, engine: Engine) -> None:
        said = await replies(engine, [request(prompts()[0], seed=seed) for seed in range(4)])
        # top_k = 1 would make them equal, max_new_tokens = 2 short, and its eos tokens would end some
        assert len({tuple(reply.token_ids) for reply in said}) == 4
        assert all(len(reply.token_ids) == 48 for reply in said if reply.finish_reason == "length")

    async def test_only_the_end_token_ends_a_reply_and_belongs_to_it(self, engine: Engine) -> None:
        said: list[Generation] = []
        while len(said) < 400 and not any(reply.finish_reason == "stop" for reply in said):
            said += await replies(engine, [request(prompt, max_tokens=400) for prompt in prompts()])
        assert any(reply.finish_reason == "stop" for reply in said)
        for reply in said:
            assert (reply.token_ids[-1] == END_TOKEN_ID) == (reply.finish_reason == "stop")
            assert END_TOKEN_ID not in reply.token_ids[:-1]
            assert len(reply.token_ids) == len(reply.logprobs) == len(reply.versions)

    async def test_equal_seeds_give_equal_replies_whatever_else_is_in_the_batch(self, engine: Engine) -> None:
        seeded = request(prompts()[2], max_tokens=24, seed=7)
        alone = await engine.generate(seeded)
        others = [request(prompt, max_tokens=24) for prompt in prompts()]
        crowded, *_ = await replies(engine, [request(prompts()[2], max_tokens=24, seed=7), *others])
        assert crowded.token_ids.tolist() == alone.token_ids.tolist()

    async def test_more_requests_than_max_concurrency_are_all_answered(
        self, engine: Engine, model: TinyModel
    ) -> None:
        many = prompts() * 3
        asked = [request(prompt, max_tokens=4 + number) for number, prompt in enumerate(many)]
        assert_agree(model, many, await replies(engine, asked))

    async def test_a_reply_ends_where_max_length_is_reached(self, engine: Engine) -> None:
        prompt = [5] * (MAX_LENGTH - 3)
        reply = await engine.generate(request(prompt, max_tokens=50))
        assert len(reply.token_ids) == 3 or reply.finish_reason == "stop"

    @pytest.mark.parametrize("num_tokens", [0, MAX_LENGTH, MAX_LENGTH + 1])
    async def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(
        self, engine: Engine, num_tokens: int
    ) -> None:
        with pytest.raises(ValueError, match=rf"{num_tokens} tokens.*{MAX_LENGTH}"):
            await engine.generate(request([5] * num_tokens))

    async def test_token_ids_outside_the_vocabulary_are_refused_and_harm_nobody(self, engine: Engine) -> None:
        with pytest.raises(ValueError, match=str(VOCAB_SIZE)):
            await engine.generate(request([5, VOCAB_SIZE]))
        await engine.generate(request([5]))

    @pytest.mark.parametrize("number", [-1, VOCAB_SIZE + 1])
    async def test_more_likely_tokens_than_there_are_can_not_be_asked_for(
        self, engine: Engine, number: int
    ) -> None:
        with pytest.raises(ValueError, match=f"top_logprobs is {number}.*{VOCAB_SIZE}"):
            await engine.generate(evolve(request([5]), top_logprobs=number))
        await engine.generate(request([5]))

    async def test_a_stop_text_ends_the_reply_with_the_token_that_completes_it(
        self, engine: Engine, model: TinyModel
    ) -> None:
        stops: list[str] = []
        for seed in range(50):
            whole = await engine.generate(request(prompts()[4], max_tokens=200, seed=seed))
            texts = [model.tokenizer.decode(whole.token_ids[: n + 1]) for n in range(len(whole.token_ids))]
            # of two characters: such a text begins in one token and ends in another, or lies within one
            stops = [text[-2:] for text in texts if text[-2:].isalpha() and text[-2:].isascii()]
            if len(stops) > 4:
                break
        stop = stops[len(stops) // 2]
        length = next(n + 1 for n, text in enumerate(texts) if stop in text)
        for given in ((stop,), ("never there", stop)):
            stopping = evolve(request(prompts()[4], max_tokens=200, seed=seed), stop=given, top_logprobs=3)
            reply, *_ = await replies(engine, [stopping, *map(request, prompts())])
            assert reply.token_ids.tolist() == whole.token_ids[:length].tolist()
            assert len(reply.logprobs) == len(reply.versions) == length
            assert reply.top_ids is not None
            assert reply.top_ids.shape == (length, 3)
            assert reply.finish_reason == "stop"
            assert_agree(model, [prompts()[4]], [reply])

    async def test_an_empty_stop_text_is_refused(self, engine: Engine) -> None:
        with pytest.raises(ValueError, match="stop text is empty"):
            await engine.generate(evolve(request([5]), stop=("",)))

    async def test_a_json_schema_is_followed_and_harms_no_other_request(
        self, engine: Engine, model: TinyModel
    ) -> None:
        schema = json.dumps({"enum": ["ab", "cdef", 17, None]})
        following = [evolve(request(prompt), json_schema=schema) for prompt in prompts()]
        said = await replies(engine, [*following, *map(request, prompts())])
        constrained, free = said[: len(following)], said[len(following) :]
        for prompt, reply in zip(prompts(), constrained, strict=True):
            assert reply.finish_reason == "stop"
            assert reply.token_ids[-1] == END_TOKEN_ID
            assert json.loads(model.tokenizer.decode(reply.token_ids[:-1])) in ["ab", "cdef", 17, None]
            # log-probs are those of the constrained distribution
            rows = expected(model, prompt, reply, int(reply.versions[0]))
            own = rows[np.arange(len(reply.token_ids)), reply.token_ids]
            assert (reply.logprobs >= own - 1e-3).all()
            assert reply.logprobs[-1] == pytest.approx(0, abs=1e-3)
        assert_agree(model, prompts(), free)

    async def test_the_empty_schema_means_a_json_object(self, engine: Engine, model: TinyModel) -> None:
        reply = await engine.generate(evolve(request(prompts()[0]), json_schema="{}"))
        assert model.tokenizer.decode(reply.token_ids).lstrip().startswith("{")

    async def test_a_schema_that_can_not_be_followed_is_refused_and_harms_nobody(
        self, engine: Engine
    ) -> None:
        for schema in ("not JSON", '{"type": "no such type"}'):
            with pytest.raises(ValueError, match="(?i)json|grammar"):
                await engine.generate(evolve(request([5]), json_schema=schema))
        await engine.generate(request([5]))

    async def test_a_cancelled_request_ends_and_the_others_go_on(
        self, engine: Engine, model: TinyModel
    ) -> None:
        others = asyncio.create_task(replies(engine, map(request, prompts()[2:])))
        waiting = await busy(engine)
        for cancelled in waiting:
            cancelled.cancel()
        for cancelled in waiting:
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        assert_agree(model, prompts()[2:], await others)

    async def test_a_healthy_engine_says_nothing(self, engine: Engine) -> None:
        await engine.check_health()
