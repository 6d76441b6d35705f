"""Whether two models number their tokens alike, from the files in their folders; weights are not read.

In: two folders of models. Out: the first difference in words, or "". The ids of a policy are fed to the other model,
a teacher, a frozen reference or a critic, so each of them must be the same token there. What the other has beyond
them does no harm: tokens that were added later, or rows that only pad its vocabulary.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_TOKENIZERS: Final = (
    "tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json",
)  # fmt: skip


def token_difference(model: Path, other: Path) -> str:
    """The first token of `model` that is not the same in `other`; "" where the files show no difference.

    A tokenizer.json is compared by piece and id, special and added tokens included; other files of tokenizers byte by
    byte, and only the sizes of the vocabularies if the two have no such file in common.
    """
    size, its = _vocabulary_size(model), _vocabulary_size(other)
    if size is not None and its is not None and its < size:
        return f"token ids go up to {size - 1} in {model} and to {its - 1} in {other}"
    for name in _TOKENIZERS:
        paths = (model / name, other / name)
        if all(path.is_file() for path in paths):
            if paths[0].read_bytes() == paths[1].read_bytes():
                return ""
            is_json = name == "tokenizer.json"
            return _first_difference(_ids(paths[0]), _ids(paths[1]), other) if is_json else f"{name} differs"
    if size is not None and its is not None and its != size:
        return f"{model} has {size} token ids, {other} has {its}, and their tokenizers have no file in common"
    return ""


def _first_difference(ids: dict[str, int], others: dict[str, int], other: Path) -> str:
    for piece, number in ids.items():
        if others.get(piece) != number:
            there = f"{others[piece]} in" if piece in others else "no token of"
            return f"{piece!r} is token {number} of the model and {there} {other}"
    return ""


def _ids(path: Path) -> dict[str, int]:
    """Piece to id, of a tokenizer.json; empty if there is none or it can't be read."""
    tokenizer = _json(path)
    inner = tokenizer.get("model")
    vocabulary = inner.get("vocab") if isinstance(inner, dict) else None
    if isinstance(vocabulary, list):  # of the kind "Unigram": pieces with their scores
        vocabulary = {entry[0]: number for number, entry in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict):
        return {}
    added = tokenizer.get("added_tokens")
    return vocabulary | {token["content"]: token["id"] for token in added or ()}


def _vocabulary_size(folder: Path) -> int | None:
    config = _json(folder / "config.json")
    text = config.get("text_config")
    size = (text if isinstance(text, dict) else config).get("vocab_size")
    return size if isinstance(size, int) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # what a model's folder lacks is reported where it is checked
    return content if isinstance(content, dict) else {}
