"""Two models number their tokens alike when each id of the first is the same token of the second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from molt_core.api.tokens import token_difference

PLAIN = {"a": 0, "b": 1}


def folder(path: Path, *, size: int | None = None, **files: Any) -> Path:
    """Names of files with __ for the dot; dictionaries are written as JSON, text as it is."""
    path.mkdir()
    config = {} if size is None else {"vocab_size": size}
    for name, content in {"config__json": config, **files}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return path


def tokenizer(vocabulary: Any, added: Mapping[str, int] | None = None) -> dict[str, Any]:
    tokens = [{"content": content, "id": number} for content, number in (added or {}).items()]
    return {"model": {"vocab": vocabulary}, "added_tokens": tokens}


def difference(tmp_path: Path, model: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return token_difference(folder(tmp_path / "model", **model), folder(tmp_path / "other", **other))


def of(vocabulary: Any, added: Mapping[str, int] | None = None, **more: Any) -> dict[str, Any]:
    return {"tokenizer__json": tokenizer(vocabulary, added), **more}


@pytest.mark.parametrize(
    ("model", "other"),
    [
        (of(PLAIN), of({"b": 1, "a": 0})),
        (of([["a", -1.0], ["b", -2.0]]), of([["a", -1.5], ["b", -2.5]])),
        # what the other has beyond the model's tokens: added ones, and rows that pad
        (of(PLAIN, {"<end>": 2}), of(PLAIN, {"<end>": 2, "<think>": 3})),
        (of(PLAIN, size=4), of({**PLAIN, "c": 2}, size=8)),
        # nothing to compare
        ({}, of(PLAIN)),
        ({"size": 8}, of(PLAIN, size=8)),
        ({"tokenizer__model": "x", "size": 8}, {"tokenizer__model": "x", "size": 9}),
    ],
)
def test_these_are_alike(tmp_path: Path, model: dict[str, Any], other: dict[str, Any]) -> None:
    assert difference(tmp_path, model, other) == ""


@pytest.mark.parametrize(
    ("model", "other", "said"),
    [
        (of(PLAIN), of({"a": 1, "b": 0}), "'a' is token 0 of the model and 1 in"),
        (of({**PLAIN, "c": 2}), of(PLAIN), "'c' is token 2 of the model and no token of"),
        (of([["a", 0.0], ["b", 0.0]]), of([["b", 0.0], ["a", 0.0]]), "'a' is token 0"),
        (of(PLAIN, {"<end>": 2}), of(PLAIN, {"<end>": 3}), "'<end>' is token 2 of the model and 3 in"),
        (of(PLAIN, {"<think>": 2}), of(PLAIN), "'<think>' is token 2 of the model and no token of"),
        (of(PLAIN, size=8), of(PLAIN, size=4), "token ids go up to 7 in"),
        ({"tokenizer__model": "x"}, {"tokenizer__model": "y"}, "tokenizer.model differs"),
        (of(PLAIN, size=8), {"tokenizer__model": "x", "size": 9}, "has 8 token ids"),
        (
            {"config__json": {"text_config": {"vocab_size": 8}}},
            {"config__json": {"text_config": {"vocab_size": 7}}}, "token ids go up to 7 in",
        ),
    ],
)  # fmt: skip
def test_the_first_difference_is_told(
    tmp_path: Path, model: dict[str, Any], other: dict[str, Any], said: str
) -> None:
    assert said in difference(tmp_path, model, other)
