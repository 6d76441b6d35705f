"""Tiny random models, items sampled from nowhere, and the plain forward pass to compare with."""

from __future__ import annotations

import atexit
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from attrs import evolve
from molt_plugin_fsdp.spec import FsdpOptions
from molt_plugin_fsdp.trainer import FsdpTrainer
from molt_plugin_losses.ppo import PpoLoss
from molt_plugin_losses.spec import PpoOptions
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from molt_core.api.trainer import TrainerContext, TrainerParts
from molt_core.experience import Segment, TrainBatch, TrainItem, Window

VOCABULARY = 97
SIZE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def run_ranks(one_rank: Callable[..., None], world_size: int, *args: Any) -> None:
    """Run `one_rank(rank, world_size, *args)` in processes of their own, forked from one that has imported torch."""
    multiprocessing.set_forkserver_preload(["molt_plugin_fsdp.trainer", "molt_plugin_losses.ppo"])
    atexit.register(forkserver._forkserver._stop)  # and wait for it; it would end a little after the tests
    torch.multiprocessing.start_processes(
        one_rank, args=(world_size, *args), nprocs=world_size, start_method="forkserver"
    )


def save_model(folder: Path, kind: str = "qwen3", **changes: Any) -> Path:
    """A random model with tied (qwen3) or untied (llama) output layer, and a tokenizer file to copy."""
    torch.manual_seed(7)
    settings = SIZE | changes
    if kind == "qwen3":
        config: Any = Qwen3Config(**settings, head_dim=8, tie_word_embeddings=True)
    else:
        config = LlamaConfig(**settings, tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # far from uniform, so that temperatures and tokens make a difference
        for param in model.parameters():
            param.mul_(4) if param.ndim > 1 else param.add_(0.1 * torch.randn_like(param))
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}', encoding="utf-8")
    return folder


def plain_model(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def plain_logprobs(model: PreTrainedModel, segment: Segment, temperature: float = 1.0) -> Tensor:
    """[N] log-probs of the sampled tokens."""
    own = torch.from_numpy(segment.token_ids[segment.sampled].astype(np.int64))
    return plain_distributions(model, segment, temperature).gather(1, own[:, None])[:, 0]


def plain_distributions(model: PreTrainedModel, segment: Segment, temperature: float = 1.0) -> Tensor:
    """[N, V] log-probs in the places of the sampled tokens, from an unpacked forward pass of the whole segment."""
    ids = torch.from_numpy(segment.token_ids.astype(np.int64))
    logits = model(input_ids=ids[None]).logits[0].float() / temperature
    return logits[:-1].log_softmax(-1)[torch.from_numpy(segment.sampled[1:])]


def with_top(segment: Segment, logprobs: Tensor, num_top: int) -> Segment:
    """With the likeliest tokens of a sampler of which [N, V] log-probs are given."""
    top = logprobs.topk(num_top, -1)
    return evolve(segment, top_ids=top.indices.numpy(), top_logprobs=top.values.numpy())


def segment(rng: np.random.Generator, prompt: Sequence[int], num_reply: int) -> Segment:
    reply = rng.integers(3, VOCABULARY, num_reply)
    logprobs = -rng.uniform(1, 6, num_reply)
    return Segment.from_turn(np.asarray(prompt), reply, logprobs, np.zeros(num_reply, int))


def two_turns(rng: np.random.Generator, prompt: Sequence[int]) -> Segment:
    """Prompt, reply of 3, a tool's 4 tokens, reply of 2, and 2 more given tokens at the end."""
    first = segment(rng, prompt, 3)
    sampled = np.concatenate([first.sampled, np.zeros(4, bool), np.ones(2, bool), np.zeros(2, bool)])
    more = rng.integers(3, VOCABULARY, 8)
    return Segment(
        token_ids=np.concatenate([first.token_ids, more]),
        sampled=sampled,
        logprobs=np.where(sampled, np.concatenate([first.logprobs, -np.ones(8)]), 0.0),
        versions=np.where(sampled, 0, -1),
    )


def window_items(seed: int = 0, num_prompts: int = 3, group_size: int = 4) -> list[TrainItem]:
    """Groups of one prompt each, replies of 1 to 7 tokens, the last of every group with two turns."""
    rng = np.random.default_rng(seed)
    items: list[TrainItem] = []
    for group in range(num_prompts):
        prompt = rng.integers(3, VOCABULARY, int(rng.integers(4, 12)))
        for sibling in range(group_size):
            last = sibling == group_size - 1
            made = two_turns(rng, prompt) if last else segment(rng, prompt, int(rng.integers(1, 8)))
            items.append(
                TrainItem(
                    segment=made, advantage=float(rng.normal()), rollout_index=len(items), group_index=group,
                    rollout_tokens=made.num_sampled, group_tokens=0, segment_index=0,
                    token_rewards=np.zeros(made.num_sampled, np.float32),
                )
            )  # fmt: skip
    totals = Counter[int]()
    for item in items:
        totals[item.group_index] += item.rollout_tokens
    return [evolve(item, group_tokens=totals[item.group_index]) for item in items]


def window_of(items: Sequence[TrainItem]) -> Window:
    return Window(
        num_tokens=sum(item.segment.num_sampled for item in items),
        num_rollouts=len({item.rollout_index for item in items}),
        num_groups=len({item.group_index for item in items}),
    )


def train_batch(items: Sequence[TrainItem], window: Window | None = None) -> TrainBatch:
    return TrainBatch(items=tuple(items), window=window or window_of(items))


def trainer(
    folder: Path, *, rank: int = 0, world_size: int = 1, rendezvous: str = "",
    parts: TrainerParts | None = None, **changes: Any,
) -> FsdpTrainer:  # fmt: skip
    """Not started; loss `ppo` unless `parts` are given. `changes` go to the context, else to the options."""
    context: dict[str, Any] = {
        "model_folder": str(folder), "dtype": "float32", "lr": 1e-3, "temperature": 1.0, "max_length": 256,
        "seed": 0, "rank": rank, "world_size": world_size, "rendezvous": rendezvous, "num_threads": 1,
        "facts": frozenset(), "reference_folder": "", "top_logprobs": 0,
    }  # fmt: skip
    context |= {key: changes.pop(key) for key in list(changes) if key in context}
    parts = parts or TrainerParts(loss=PpoLoss(PpoOptions()))
    return FsdpTrainer(FsdpOptions(**changes), TrainerContext(**context), parts)


@contextmanager
def started(folder: Path, **settings: Any) -> Iterator[FsdpTrainer]:
    """A trainer that has started and is stopped at the end."""
    made = trainer(folder, **settings)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def published(made: FsdpTrainer, folder: Path, version: int = 1) -> dict[str, Tensor]:
    """The weights that engines would load. On rank 0."""
    weights = made.publish(version, folder)
    assert weights is not None
    return load_file(weights.path)


AS_GRADIENT: dict[str, Any] = {"lr": 1.0, "eps": 1.0, "max_grad_norm": 1e9}
"""With these one AdamW step moves a weight by g / (|g| + 1): equal weights afterwards mean equal gradients."""


def assert_equal_weights(got: dict[str, Tensor], wanted: dict[str, Tensor], atol: float = 1e-5) -> None:
    assert got.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(
            got[name], tensor, rtol=0, atol=atol, msg=lambda text, n=name: f"{n}: {text}"
        )
