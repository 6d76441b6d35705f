"""The sequences that are being decoded together, and their KV cache. Blocking; owned by one thread.

A sequence enters by a prefill of all it has so far, prompt and sampled tokens, and is then
decoded one token at a time with the others. New weights send every sequence back to the
entrance, so that nothing computed by the old ones is left. Which of the rows are there never
changes what a row computes: rows are left-padded to one length, padding is masked, and
positions count a row's own tokens.

Legend of shape suffixes: B rows, T tokens, H heads, D head dimension.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import torch
from attrs import define, field
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel

from molt_plugin_transformers.sampling import sample


@define(eq=False, kw_only=True)
class LiveSequence:
    """One request while it is answered."""

    prompt: Sequence[int]
    max_tokens: int
    temperature: float
    random: random.Random
    has_stopped: Callable[[Sequence[int]], bool]
    """Whether the reply so far, never empty, is at its end for another reason than its length."""
    mask_BV: Callable[[torch.Tensor, Sequence[int]], None] | None = None
    """Sets impossible logits of one row, [1, V], to -inf, given the reply so far."""
    num_top: int = 0
    """Likeliest tokens to note beside each sampled one."""
    token_ids: list[int] = field(factory=list)
    logprobs: list[float] = field(factory=list)
    top_ids: list[list[int]] = field(factory=list)
    top_logprobs: list[list[float]] = field(factory=list)
    versions: list[int] = field(factory=list)
    abandoned: bool = False
    """Nobody waits for it any more; the next step drops it."""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.token_ids)


class Batch:
    """At most `max_rows` sequences, and a queue of those that wait for a row."""

    def __init__(self, model: PreTrainedModel, *, max_rows: int) -> None:
        self.version = 0
        self._model = model
        self._max_rows = max_rows
        self._waiting: list[LiveSequence] = []
        self._rows: list[LiveSequence] = []
        self._cache = DynamicCache()
        # keys and values of every token of a row but the last, which is the next input
        self._mask_BT = torch.zeros(0, 0, dtype=torch.long, device=model.device)

    @property
    def num_unfinished(self) -> int:
        return len(self._waiting) + len(self._rows)

    @torch.inference_mode()
    def step(self, arrived: Iterable[LiveSequence]) -> list[LiveSequence]:
        """Sample one token for all that enter now or, when none does, for all rows. Returns the finished ones."""
        self._keep([not row.abandoned for row in self._rows])
        self._waiting = [each for each in (*self._waiting, *arrived) if not each.abandoned]
        num_free = self._max_rows - len(self._rows)
        entering, self._waiting = self._waiting[:num_free], self._waiting[num_free:]
        if entering:
            self._prefill(entering)
        elif self._rows:
            self._decode()
        unfinished = [
            len(row.token_ids) < row.max_tokens and not row.has_stopped(row.token_ids) for row in self._rows
        ]
        finished = [row for row, goes_on in zip(self._rows, unfinished, strict=True) if not goes_on]
        self._keep(unfinished)
        return finished

    def restart(self, version: int) -> None:
        """The weights are now those of `version`: forget the cache, prefill every sequence again."""
        self.version = version
        self._waiting = self._rows + self._waiting
        self._keep([False] * len(self._rows))

    def _prefill(self, entering: list[LiveSequence]) -> None:
        length = max(each.num_tokens for each in entering)
        lengths_B1 = torch.tensor([[each.num_tokens] for each in entering])
        mask_BT = (torch.arange(length) >= length - lengths_B1).long().to(self._model.device)
        ids_BT = torch.zeros(len(entering), length, dtype=torch.long)
        for row, each in enumerate(entering):
            ids_BT[row, length - each.num_tokens :] = torch.tensor([*each.prompt, *each.token_ids])
        positions_BT = (mask_BT.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache()
        logits_BV = self._forward(ids_BT.to(self._model.device), mask_BT, positions_BT, cache)
        self._sample(entering, logits_BV)
        self._join(entering, cache, mask_BT)

    def _decode(self) -> None:
        device = self._model.device
        ids_B1 = torch.tensor([[row.token_ids[-1]] for row in self._rows], device=device)
        positions_B1 = torch.tensor([[row.num_tokens - 1] for row in self._rows], device=device)
        self._mask_BT = pad(self._mask_BT, (0, 1), value=1)
        self._sample(self._rows, self._forward(ids_B1, self._mask_BT, positions_B1, self._cache))

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
    ) -> torch.Tensor:
        output = self._model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        return output.logits[:, -1]

    def _sample(self, rows: list[LiveSequence], logits_BV: torch.Tensor) -> None:
        for number, row in enumerate(rows):
            if row.mask_BV is not None:
                row.mask_BV(logits_BV[number : number + 1], row.token_ids)
        temperatures = [row.temperature for row in rows]
        uniforms = [row.random.random() for row in rows]
        sampled = sample(logits_BV, temperatures, uniforms, num_top=max(row.num_top for row in rows))
        for row, token_id, logprob, top_ids, top_logprobs in zip(rows, *sampled, strict=True):
            row.token_ids.append(token_id)
            row.logprobs.append(logprob)
            row.top_ids.append(top_ids[: row.num_top])
            row.top_logprobs.append(top_logprobs[: row.num_top])
            row.versions.append(self.version)

    def _join(self, entering: list[LiveSequence], cache: DynamicCache, mask_BT: torch.Tensor) -> None:
        """Put new rows below the others, the shorter of the two padded on the left."""
        if not self._rows:
            self._rows, self._cache, self._mask_BT = list(entering), cache, mask_BT
            return
        length = max(mask_BT.shape[1], self._mask_BT.shape[1])

        def stacked(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
            # [B, H, T, D]
            return torch.cat([pad(each, (0, 0, length - each.shape[2], 0)) for each in (old, new)])

        for ours, theirs in zip(self._cache.layers, cache.layers, strict=True):
            ours.keys = stacked(ours.keys, theirs.keys)
            ours.values = stacked(ours.values, theirs.values)
        masks = [pad(each, (length - each.shape[1], 0)) for each in (self._mask_BT, mask_BT)]
        self._mask_BT = torch.cat(masks)
        self._rows = self._rows + entering

    def _keep(self, kept: list[bool]) -> None:
        """Drop the other rows, and the padding on the left that no row needs any more."""
        if all(kept):
            return
        self._rows = [row for row, keep in zip(self._rows, kept, strict=True) if keep]
        if not self._rows:
            self._cache, self._mask_BT = DynamicCache(), self._mask_BT[:0, :0]
            return
        index = torch.tensor([row for row, keep in enumerate(kept) if keep], device=self._mask_BT.device)
        mask_BT = self._mask_BT[index]
        start = int(mask_BT.any(0).int().argmax())
        self._mask_BT = mask_BT[:, start:]
        for layer in self._cache.layers:
            layer.keys = layer.keys[index, :, start:]
            layer.values = layer.values[index, :, start:]
