from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from molt_core.api.engine import GenerateRequest, Weights
from molt_core.errors import RunError
from molt_core.testing.scripted_engine import Script, ScriptedEngine

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
END = len(BYTES)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    made = Tokenizer(models.BPE({text: number for number, text in enumerate(BYTES)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|end|>"])
    made.save(str(tmp_path / "tokenizer.json"))
    return made


def request(
    tokenizer: Tokenizer, text: str, *, max_tokens: int = 99, stop: tuple[str, ...] = ()
) -> GenerateRequest:
    token_ids = tokenizer.encode(text).ids
    return GenerateRequest(
        request_id=text, token_ids=token_ids, max_tokens=max_tokens, temperature=1.0, stop=stop
    )


def engine(folder: Path, script: Script) -> ScriptedEngine:
    return ScriptedEngine(folder, script, end_token_id=END, max_length=120)


async def test_it_says_what_the_script_makes_of_prompt_and_call_number(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    scripted = engine(tmp_path, lambda prompt, number: f"{prompt}{number}")
    replies = [await scripted.generate(request(tokenizer, "hé<|end|>")) for _ in range(2)]
    texts = [tokenizer.decode(reply.token_ids.tolist(), skip_special_tokens=False) for reply in replies]
    assert texts == ["hé<|end|>0<|end|>", "hé<|end|>1<|end|>"]
    assert [reply.finish_reason for reply in replies] == ["stop", "stop"]
    assert [generation for _, generation in scripted.record] == replies


async def test_limits_and_stop_texts_end_a_reply(tokenizer: Tokenizer, tmp_path: Path) -> None:
    scripted = engine(tmp_path, lambda prompt, number: "one two three")
    cut = await scripted.generate(request(tokenizer, "x", max_tokens=5))
    stopped = await scripted.generate(request(tokenizer, "x", max_tokens=7, stop=("two", "three")))
    assert (tokenizer.decode(cut.token_ids.tolist()), cut.finish_reason) == ("one t", "length")
    assert (tokenizer.decode(stopped.token_ids.tolist()), stopped.finish_reason) == ("one two", "stop")
    with pytest.raises(ValueError, match="max_length"):
        await scripted.generate(request(tokenizer, "x" * 120))


async def test_an_exception_of_the_script_is_raised_and_not_recorded(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    scripted = engine(tmp_path, lambda prompt, number: RunError("gone"))
    with pytest.raises(RunError, match="gone"):
        await scripted.generate(request(tokenizer, "x"))
    assert not scripted.record
    assert scripted.num_in_flight == 0


async def test_an_update_in_mid_request_shows_in_the_versions(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def script(prompt: str, number: int) -> str:
        await scripted.update_weights(Weights(version=3, path=tmp_path, num_bytes=0), drain=False)
        return "abc"

    scripted = engine(tmp_path, script)
    reply = await scripted.generate(request(tokenizer, "x"))
    assert reply.versions.tolist() == [0, 0, 3, 3]
