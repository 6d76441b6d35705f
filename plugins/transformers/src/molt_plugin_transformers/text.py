"""What needs a tokenizer: stop texts, and JSON schemas by xgrammar where it is installed.

In: what a reply has so far, as token ids. Out: whether it is at its end, and which tokens may follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase


class Text:
    """The tokenizer of a model's folder, read when it is first needed.

    Raises:
        ValueError: from each method, saying what is missing.
    """

    def __init__(self, model_folder: str, end_token_ids: Sequence[int]) -> None:
        self._folder = model_folder
        self._end_token_ids = list(end_token_ids)
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._compiler: Any = None

    def stop_check(self, stop: Sequence[str]) -> Callable[[Sequence[int]], bool]:
        """Whether a reply ends with an end token or contains one of `stop`; to be asked after each token."""
        end = frozenset(self._end_token_ids)
        if not stop:
            return lambda token_ids: token_ids[-1] in end
        tokenizer = self._load()
        # a token is at least a byte; the rest is for characters that the cut at the left breaks
        num_tail = max(len(text.encode()) for text in stop) + 4

        def stopped(token_ids: Sequence[int]) -> bool:
            tail = tokenizer.decode(token_ids[-num_tail:], clean_up_tokenization_spaces=False)
            return token_ids[-1] in end or any(text in tail for text in stop)

        return stopped

    def schema_mask(
        self, json_schema: str | None, vocabulary_size: int
    ) -> Callable[[torch.Tensor, Sequence[int]], None] | None:
        """Sets the logits of what can't follow to -inf; to be called before each token."""
        if json_schema is None:
            return None
        try:
            import xgrammar
        except ImportError as error:
            raise ValueError(
                "replies by a JSON schema need xgrammar; `pip install molt-plugin-transformers[json]`"
            ) from error
        if self._compiler is None:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._load(), vocab_size=vocabulary_size, stop_token_ids=self._end_token_ids
            )
            self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        schema = '{"type": "object"}' if json_schema.strip() == "{}" else json_schema
        try:
            grammar = self._compiler.compile_json_schema(schema)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"xgrammar can't follow the JSON schema: {error}") from error
        matcher = xgrammar.GrammarMatcher(grammar, override_stop_tokens=self._end_token_ids)
        allowed_1W = xgrammar.allocate_token_bitmask(1, vocabulary_size)

        def mask(logits_1V: torch.Tensor, token_ids: Sequence[int]) -> None:
            if token_ids:
                matcher.accept_token(token_ids[-1])
            matcher.fill_next_token_bitmask(allowed_1W)
            xgrammar.apply_token_bitmask_inplace(logits_1V, allowed_1W.to(logits_1V.device))

        return mask

    def _load(self) -> PreTrainedTokenizerBase:
        if self._tokenizer is None:
            try:
                self._tokenizer = AutoTokenizer.from_pretrained(self._folder)
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"stop texts and JSON schemas need a tokenizer, and {self._folder} has none that can be "
                    f"read: {error}"
                ) from error
        return self._tokenizer
