"""What every engine must do, as tests: subclass `EngineContract` in a test module of your plugin.

    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def engine(model: TinyModel) -> AsyncIterator[Engine]: ...   # started with `context(model)`

    @pytest.mark.asyncio(loop_scope="module")
    class TestMyEngine(EngineContract): ...

with a fixture `model` of module scope that makes a `TinyModel`. One engine serves all tests, in
any order: each starts from whatever version is loaded. Replies are compared with transformers
in float32, so an engine that samples from another distribution than softmax(logits /
temperature), mislabels a token's version, or keeps anything of the old weights fails.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from itertools import count
from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve

from molt_core.api.engine import Engine, EngineContext, GenerateRequest, Generation, Weights
from molt_core.errors import RunError
from molt_core.experience.segment import FloatArray
from molt_core.testing.tiny_model import END_TOKEN_ID, VOCAB_SIZE, TinyModel

MAX_LENGTH: Final = 512
MAX_CONCURRENCY: Final = 8
MAX_TOP_LOGPROBS: Final = 24
PAUSE_S: Final = 0.05
"""Between two updates with requests in flight, so that tokens are sampled under each."""

_numbers = count()


def context(model: TinyModel, *, index: int = 0) -> EngineContext:
    """The context that the tests expect the engine to have been started with."""
    return EngineContext(
        model_folder=str(model.folder), dtype="float32", max_length=MAX_LENGTH, max_concurrency=MAX_CONCURRENCY,
        seed=0, index=index, num_threads=1, end_token_ids=(END_TOKEN_ID,), top_logprobs=MAX_TOP_LOGPROBS,
    )  # fmt: skip


def request(
    prompt: list[int], *, max_tokens: int = 48, temperature: float = 1.0, seed: int | None = None
) -> GenerateRequest:
    return GenerateRequest(
        request_id=f"request-{next(_numbers)}", token_ids=prompt, max_tokens=max_tokens, temperature=temperature,
        seed=seed,
    )  # fmt: skip


def prompts(num_prompts: int = 8) -> list[list[int]]:
    """Of different lengths, from 3 to 24 tokens, without the end token."""
    rng = np.random.default_rng(0)
    return [rng.integers(1, END_TOKEN_ID, 3 * (number + 1)).tolist() for number in range(num_prompts)]


def differences(
    model: TinyModel, prompt: list[int], reply: Generation, *, temperature: float = 1.0
) -> FloatArray:
    """[N] |log-prob of the engine - log-prob of transformers under the version that the token carries|."""
    history = np.concatenate([np.asarray(prompt, np.int32), reply.token_ids])
    expected = np.zeros(len(reply.token_ids), np.float32)
    for version in np.unique(reply.versions):
        rows = model.logprobs(int(version), history, temperature)[len(prompt) - 1 : -1]
        mine = reply.versions == version
        expected[mine] = rows[mine, reply.token_ids[mine]]
    distances: FloatArray = np.abs(expected - reply.logprobs)
    return distances


class EngineContract:
    """Tests of slot `engines`, API 1."""

    async def publish(self, engine: Engine, model: TinyModel, *, drain: bool = False) -> Weights:
        """Update to a version that no test has used, and return its weights."""
        weights = model.weights(model.next_version())
        await engine.update_weights(weights, drain=drain)
        return weights

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    async def test_logprobs_agree_with_transformers_before_and_after_an_update(
        self, engine: Engine, model: TinyModel, temperature: float
    ) -> None:
        for _ in range(2):
            replies = await asyncio.gather(
                *(engine.generate(request(prompt, temperature=temperature)) for prompt in prompts())
            )
            found = [
                differences(model, prompt, reply, temperature=temperature)
                for prompt, reply in zip(prompts(), replies, strict=True)
            ]
            assert np.concatenate(found).mean() < 1e-4
            assert np.concatenate(found).max() < 1e-3
            await self.publish(engine, model)

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    async def test_the_likeliest_tokens_are_those_of_transformers_across_updates_in_flight(
        self, engine: Engine, model: TinyModel, temperature: float
    ) -> None:
        numbers = [0, 1, 5, MAX_TOP_LOGPROBS] * 2
        asked = [
            evolve(request(prompt, temperature=temperature), top_logprobs=number)
            for prompt, number in zip(prompts(), numbers, strict=True)
        ]
        running = [asyncio.create_task(engine.generate(each)) for each in asked]
        await asyncio.sleep(PAUSE_S)
        await self.publish(engine, model)
        for prompt, number, reply in zip(prompts(), numbers, await asyncio.gather(*running), strict=True):
            if number == 0:
                assert reply.top_ids is None
                assert reply.top_logprobs is None
                continue
            assert reply.top_ids is not None
            assert reply.top_logprobs is not None
            assert reply.top_ids.shape == reply.top_logprobs.shape == (len(reply.token_ids), number)
            history = np.concatenate([np.asarray(prompt, np.int32), reply.token_ids])
            for version in np.unique(reply.versions):
                mine = reply.versions == version
                rows = model.logprobs(int(version), history, temperature)[len(prompt) - 1 : -1][mine]
                own = np.take_along_axis(rows, reply.top_ids[mine].astype(np.int64), -1)
                assert np.abs(own - reply.top_logprobs[mine]).max() < 1e-3
                # equally likely tokens may change places
                assert np.abs(-np.sort(-rows)[:, :number] - reply.top_logprobs[mine]).max() < 1e-3
            assert all(len(set(ids)) == number for ids in reply.top_ids.tolist())

    @pytest.mark.parametrize("number", [-1, VOCAB_SIZE + 1])
    async def test_more_likely_tokens_than_there_are_can_not_be_asked_for(
        self, engine: Engine, number: int
    ) -> None:
        with pytest.raises(ValueError, match=f"top_logprobs is {number}.*{VOCAB_SIZE}"):
            await engine.generate(evolve(request([5]), top_logprobs=number))
        await engine.generate(request([5]))

    async def test_temperature_0_takes_the_most_likely_token_with_its_unscaled_logprob(
        self, engine: Engine, model: TinyModel
    ) -> None:
        prompt = prompts()[3]
        reply = await engine.generate(request(prompt, max_tokens=8, temperature=0.0))
        rows = model.logprobs(int(reply.versions[0]), np.asarray([*prompt, *reply.token_ids], np.int32), 1.0)
        assert reply.token_ids.tolist() == rows[len(prompt) - 1 : -1].argmax(-1).tolist()
        assert differences(model, prompt, reply).max() < 1e-3

    async def test_generation_config_of_the_model_changes_nothing(self, engine: Engine) -> None:
        replies = await asyncio.gather(
            *(engine.generate(request(prompts()[0], seed=seed)) for seed in range(4))
        )
        # top_k = 1 would make them equal, max_new_tokens = 2 short, and its eos tokens would end some
        assert len({tuple(reply.token_ids) for reply in replies}) == 4
        assert all(len(reply.token_ids) == 48 for reply in replies if reply.finish_reason == "length")

    async def test_only_the_end_token_ends_a_reply_and_belongs_to_it(self, engine: Engine) -> None:
        replies: list[Generation] = []
        while len(replies) < 400 and not any(reply.finish_reason == "stop" for reply in replies):
            replies += await asyncio.gather(
                *(engine.generate(request(prompt, max_tokens=400)) for prompt in prompts())
            )
        assert any(reply.finish_reason == "stop" for reply in replies)
        for reply in replies:
            assert (reply.token_ids[-1] == END_TOKEN_ID) == (reply.finish_reason == "stop")
            assert END_TOKEN_ID not in reply.token_ids[:-1]
            assert len(reply.token_ids) == len(reply.logprobs) == len(reply.versions)

    async def test_equal_seeds_give_equal_replies_whatever_else_is_in_the_batch(self, engine: Engine) -> None:
        alone = await engine.generate(request(prompts()[2], max_tokens=24, seed=7))
        crowded, *_ = await asyncio.gather(
            engine.generate(request(prompts()[2], max_tokens=24, seed=7)),
            *(engine.generate(request(prompt, max_tokens=24)) for prompt in prompts()),
        )
        assert crowded.token_ids.tolist() == alone.token_ids.tolist()

    async def test_more_requests_than_max_concurrency_are_all_answered(
        self, engine: Engine, model: TinyModel
    ) -> None:
        many = prompts() * 3
        replies = await asyncio.gather(
            *(engine.generate(request(prompt, max_tokens=4 + number)) for number, prompt in enumerate(many))
        )
        worst = max(
            differences(model, prompt, reply).max() for prompt, reply in zip(many, replies, strict=True)
        )
        assert worst < 1e-3

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

    async def test_an_update_in_flight_splits_replies_exactly_where_the_weights_changed(
        self, engine: Engine, model: TinyModel
    ) -> None:
        replies = await self._generate_while_updating(engine, model, drain=False)
        assert any(len(set(reply.versions)) > 1 for reply in replies)
        for prompt, reply in zip(prompts(), replies, strict=True):
            assert (np.diff(reply.versions) >= 0).all()
            # under the new weights with the whole history: a stale KV cache would be 0.1 and more off
            assert differences(model, prompt, reply).max() < 1e-3

    async def test_a_drained_update_leaves_one_version_in_each_reply(
        self, engine: Engine, model: TinyModel
    ) -> None:
        replies = await self._generate_while_updating(engine, model, drain=True)
        for prompt, reply in zip(prompts(), replies, strict=True):
            assert len(set(reply.versions)) == 1
            assert differences(model, prompt, reply).max() < 1e-3

    async def test_a_prompt_seen_before_an_update_is_computed_anew_after_it(
        self, engine: Engine, model: TinyModel
    ) -> None:
        prompt = (prompts()[7] * 20)[:300]
        for _ in range(2):
            reply = await engine.generate(request(prompt, max_tokens=8))
            assert differences(model, prompt, reply).max() < 1e-3
            weights = await self.publish(engine, model)
        reply = await engine.generate(request(prompt, max_tokens=8))
        assert set(reply.versions) == {weights.version}
        assert differences(model, prompt, reply).max() < 1e-3

    @pytest.mark.parametrize("wrong", ["missing", "unknown", "of another shape"])
    async def test_weights_that_do_not_fit_are_refused_by_name_and_change_nothing(
        self, engine: Engine, model: TinyModel, wrong: str
    ) -> None:
        from safetensors.torch import save_file

        current = await self.publish(engine, model)
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
        assert differences(model, prompts()[0], reply).max() < 1e-3

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
            reply, *_ = await asyncio.gather(
                engine.generate(stopping), *(engine.generate(request(prompt)) for prompt in prompts())
            )
            assert reply.token_ids.tolist() == whole.token_ids[:length].tolist()
            assert len(reply.logprobs) == len(reply.versions) == length
            assert reply.top_ids is not None
            assert reply.top_ids.shape == (length, 3)
            assert reply.finish_reason == "stop"
            assert differences(model, prompts()[4], reply).max() < 1e-3

    async def test_stop_texts_are_exact_across_updates_in_flight(
        self, engine: Engine, model: TinyModel
    ) -> None:
        stops = tuple(a + b for a in "abcd" for b in "abcdefgh")
        replies = await self._generate_while_updating(engine, model, drain=False, stop=stops)
        for prompt, reply in zip(prompts(), replies, strict=True):
            texts = [model.tokenizer.decode(reply.token_ids[: n + 1]) for n in range(len(reply.token_ids))]
            hits = [n + 1 for n, text in enumerate(texts) if any(stop in text for stop in stops)]
            assert hits in ([], [len(reply.token_ids)])
            if hits:
                assert reply.finish_reason == "stop"
            assert differences(model, prompt, reply).max() < 1e-3

    async def test_an_empty_stop_text_is_refused(self, engine: Engine) -> None:
        with pytest.raises(ValueError, match="stop text is empty"):
            await engine.generate(evolve(request([5]), stop=("",)))

    async def test_a_json_schema_is_followed_and_harms_no_other_request(
        self, engine: Engine, model: TinyModel
    ) -> None:
        schema = json.dumps({"enum": ["ab", "cdef", 17, None]})
        constrained, free = await asyncio.gather(
            asyncio.gather(
                *(engine.generate(evolve(request(prompt), json_schema=schema)) for prompt in prompts())
            ),
            asyncio.gather(*(engine.generate(request(prompt)) for prompt in prompts())),
        )
        for prompt, reply in zip(prompts(), constrained, strict=True):
            assert reply.finish_reason == "stop"
            assert reply.token_ids[-1] == END_TOKEN_ID
            assert json.loads(model.tokenizer.decode(reply.token_ids[:-1])) in ["ab", "cdef", 17, None]
            # log-probs are those of the constrained distribution
            history = np.asarray([*prompt, *reply.token_ids], np.int32)
            rows = model.logprobs(int(reply.versions[0]), history, 1.0)[len(prompt) - 1 : -1]
            own = rows[np.arange(len(reply.token_ids)), reply.token_ids]
            assert (reply.logprobs >= own - 1e-3).all()
            assert reply.logprobs[-1] == pytest.approx(0, abs=1e-3)
        for prompt, reply in zip(prompts(), free, strict=True):
            assert differences(model, prompt, reply).max() < 1e-3

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
        others = asyncio.gather(*(engine.generate(request(prompt)) for prompt in prompts()[2:]))
        for cancelled in await busy(engine):
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        for prompt, reply in zip(prompts()[2:], await others, strict=True):
            assert differences(model, prompt, reply).max() < 1e-3

    async def test_a_healthy_engine_says_nothing(self, engine: Engine) -> None:
        await engine.check_health()

    async def _generate_while_updating(
        self, engine: Engine, model: TinyModel, *, drain: bool, stop: tuple[str, ...] = ()
    ) -> list[Generation]:
        """Replies of requests during which the weights changed, at least once."""
        running = asyncio.gather(
            *(
                engine.generate(evolve(request(prompt, max_tokens=200, seed=number), stop=stop))
                for number, prompt in enumerate(prompts())
            )
        )
        while not running.done():
            await asyncio.sleep(PAUSE_S)
            await self.publish(engine, model, drain=drain)
        return await running


async def busy(engine: Engine) -> list[asyncio.Task[Generation]]:
    """Requests that the engine is answering, and will be for a while."""
    tasks = [asyncio.create_task(engine.generate(request(prompt, max_tokens=400))) for prompt in prompts()]
    await asyncio.sleep(PAUSE_S)
    # by chance a reply may have ended already
    waiting = [task for task in tasks if not task.done()]
    assert waiting
    return waiting


async def assert_unusable_after_a_failed_update(engine: Engine, model: TinyModel) -> None:
    """A file whose header fits but whose bytes can't be loaded ends the engine, and everyone hears why.

    The engine is of no use afterwards.
    """
    weights = model.weights(model.next_version())
    content = weights.path.read_bytes()
    header_length = int.from_bytes(content[:8], "little")
    # a dtype of another size: no longer what the offsets say
    header = content[8 : 8 + header_length].replace(b'"F32"', b'"F64"')
    weights.path.write_bytes(content[:8] + header + content[8 + header_length :])
    waiting = await busy(engine)
    with pytest.raises(RunError, match=f"update to version {weights.version} failed"):
        await engine.update_weights(weights, drain=False)
    await _assert_all_raise(engine, waiting, f"update to version {weights.version} failed")


async def assert_stopped(engine: Engine) -> None:
    """`stop` ends those who wait, may be called twice, and nothing is served afterwards."""
    waiting = await busy(engine)
    await engine.stop()
    await engine.stop()
    await _assert_all_raise(engine, waiting, "stopped")


async def _assert_all_raise(engine: Engine, waiting: list[asyncio.Task[Generation]], match: str) -> None:
    calls: list[Awaitable[Any]] = [*waiting, engine.generate(request([5])), engine.check_health()]
    for call in calls:
        with pytest.raises(RunError, match=match):
            await call
