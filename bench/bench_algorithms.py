"""Time and peak memory of the algorithms: advantages of a large step, and log-probs with loss, forward and backward.

advantages   4,096 rollouts of 8,192 tokens. Estimators of whole rollouts see 4,096 numbers; those of tokens see 33.5
             million, as if one rank held them all. Memory is what numpy has allocated at its peak.
log-probs    one micro-batch of rollouts of 512 sampled tokens, a vocabulary of 150,000, float32, a model of one narrow
             layer, so that nearly all of the work is the output layer, softmax and loss. The trainer's way, 256 rows of
             logits at a time and once more in the backward pass, beside the one-shot way, all logits at once.
             The fastest of three, after one to warm up. Memory is the peak of the process above what it had with
             weights and gradients in place; on a GPU what torch has allocated.

The one-shot way takes about 1.9 MB for each token: 3.8 GB with --tokens 2048, the default, 15 GB with 8192 and 31 GB
with 16384. The trainer's takes hardly more for more tokens, so its share falls with their number; it is measured at
--long tokens as well. The advantages of tokens take 2.7 GB.

Bounds: the trainer's way takes at most 1.3 x the time and under a quarter of the memory of the one-shot way.

    .venv/bin/python bench/bench_algorithms.py                    about ten minutes on two cores
    .venv/bin/python bench/bench_algorithms.py --tokens 8192      16 GB
    .venv/bin/python bench/bench_algorithms.py --tokens 512 --long 0 --rollouts 256
    .venv/bin/python bench/bench_algorithms.py --device cuda --tokens 16384
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

MAX_TIME_RATIO: Final = 1.3
MAX_MEMORY_SHARE: Final = 0.25
LEAST_TOKENS: Final = 2048
"""With fewer, a piece of the trainer's is a large part of the whole."""
VOCABULARY: Final = 150_000
LOGIT_ROWS: Final = 256
REPLY: Final = 512
REPEATS: Final = 3
LOSSES: Final = {"ppo": "PPO", "gspo": "GSPO", "cispo": "CISPO"}
TOKEN_ESTIMATORS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "reinforce++ (KL, gamma)": ("REINFORCE_PP", {"kl_coef": 0.1, "gamma": 0.99}),
    "gae": ("GAE", {"kl_coef": 0.1, "lam": 0.95}),
    "on_policy_distill": ("ON_POLICY_DISTILL", {}),
}


def made(spec: Any, **options: Any) -> Any:
    """The plugin that a spec describes."""
    module, _, attribute = spec.factory.partition(":")
    return getattr(import_module(module), attribute)(spec.options(**options))


def advantages(num_rollouts: int, num_tokens: int) -> Iterator[tuple[str, float, float]]:
    """(estimator, seconds, peak bytes)."""
    from molt_plugin_estimators import spec

    from molt_core.api.estimator import RewardBatch, TokenRollouts

    rng = np.random.default_rng(0)
    batch = RewardBatch(
        rewards=rng.integers(0, 2, num_rollouts).astype(np.float64),
        groups=np.arange(num_rollouts) // 8,
        num_tokens=np.full(num_rollouts, num_tokens),
    )
    for name in ("REINFORCE_PP", "REINFORCE_PP_BASELINE", "GRPO", "DR_GRPO", "RLOO", "FLASH_REINFORCE"):
        one = getattr(spec, name)
        yield one.name, *measured(lambda: made(one).advantages(batch))  # noqa: B023 - called at once
    count = num_rollouts * num_tokens
    rewards = np.zeros(count)
    rewards[num_tokens - 1 :: num_tokens] = batch.rewards
    tokens = TokenRollouts(
        starts=np.arange(num_rollouts + 1) * num_tokens,
        rewards=rewards,
        reference_log_ratio=rng.normal(0, 0.1, count),
        values=rng.normal(0, 0.1, count),
    )
    for label, (name, options) in TOKEN_ESTIMATORS.items():
        estimator = made(getattr(spec, name), **options)
        yield label, *measured(lambda: estimator.token_advantages(tokens, lambda vector: vector))  # noqa: B023


def measured(function: Callable[[], object]) -> tuple[float, float]:
    tracemalloc.start()
    began = time.perf_counter()
    function()
    seconds = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return seconds, float(peak)


def in_own_process(way: str, num_tokens: int, device: str, loss: str) -> dict[str, float]:
    """{seconds, peak_bytes, loss} of forward and backward, measured where nothing ran before."""
    command = [sys.executable, "-W", "ignore", __file__, "--way", way, "--device", device, "--loss", loss]
    done = subprocess.run(
        [*command, "--tokens", str(num_tokens)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{way} with {num_tokens} tokens ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def forward_and_backward(way: str, num_tokens: int, device: str, loss_name: str) -> dict[str, float]:
    import torch
    from molt_plugin_fsdp.policy import Policy, hidden_states
    from molt_plugin_losses import spec
    from torch import Tensor
    from transformers import AutoModelForCausalLM, Qwen3Config

    row = packed_row(num_tokens)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=4, head_dim=64, max_position_embeddings=4 * REPLY, tie_word_embeddings=True,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).to(device)
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    policy = Policy(model, temperature=1.0, logit_rows=LOGIT_ROWS)
    loss = made(getattr(spec, LOSSES[loss_name]))

    def one_shot() -> tuple[Tensor, Tensor]:
        hidden = hidden_states(model.base_model, row)
        predicting = hidden.index_select(0, torch.from_numpy(row.predictors).to(hidden.device))
        log_probs = model.get_output_embeddings()(predicting).float().log_softmax(-1)
        wanted = torch.from_numpy(row.targets).to(hidden.device)
        with torch.no_grad():
            entropy = torch.special.entr(log_probs.exp()).sum(-1)
        return log_probs.gather(-1, wanted[:, None])[:, 0], entropy

    def once() -> float:
        logprobs, entropy = policy(row)[:2] if way == "trainer" else one_shot()
        output = loss(token_batch(row, logprobs, entropy))
        output.loss.backward()
        return float(output.loss)

    before, peak = memory(device)
    seconds = []
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        value = once()
        seconds.append(time.perf_counter() - began)
    return {"seconds": min(seconds[1:]), "peak_bytes": peak() - before, "loss": value}


def packed_row(num_tokens: int) -> Any:
    from molt_plugin_fsdp.packing import pack

    from molt_core.experience import Segment, TrainItem

    rng = np.random.default_rng(0)
    items = []
    for number in range(max(1, num_tokens // REPLY)):
        size = min(REPLY, num_tokens)
        segment = Segment.from_turn(
            rng.integers(3, VOCABULARY, 8), rng.integers(3, VOCABULARY, size), np.full(size, -12.0), np.zeros(size)
        )  # fmt: skip
        items.append(
            TrainItem(
                segment=segment, advantage=float(rng.normal()), rollout_index=number, group_index=0,
                rollout_tokens=size,
                group_tokens=num_tokens, segment_index=0, token_rewards=np.zeros(size, np.float32),
            )
        )  # fmt: skip
    (row,) = pack(items, max_tokens=2 * num_tokens + 64, share_prompts=False)
    return row


def token_batch(row: Any, logprobs: Any, entropy: Any) -> Any:
    import torch

    from molt_core.api.loss import TokenBatch
    from molt_core.experience import Window

    def on_device(values: Any) -> Any:
        return torch.as_tensor(values, device=logprobs.device)

    num_rollouts = int(row.rollout_index.max()) + 1
    return TokenBatch(
        logprobs=logprobs, entropy=entropy, behaviour_logprobs=on_device(row.behaviour_logprobs),
        old_logprobs=logprobs.detach(), advantages=on_device(row.advantages),
        weights=torch.ones_like(entropy), rollout_log_ratio=torch.zeros_like(entropy), reference_logprobs=None,
        rollout_tokens=on_device(row.rollout_tokens), group_tokens=on_device(row.group_tokens),
        rollout_index=on_device(row.rollout_index), group_index=on_device(row.group_index),
        window=Window(num_tokens=len(row.targets), num_rollouts=num_rollouts, num_groups=1),
    )  # fmt: skip


def memory(device: str) -> tuple[float, Callable[[], float]]:
    """Bytes now, and a function for the peak since."""
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return float(torch.cuda.memory_allocated()), lambda: float(torch.cuda.max_memory_allocated())

    # not getrusage: its peak begins with that of the process that started this one
    Path("/proc/self/clear_refs").write_text("5")
    return _from_status("VmRSS"), lambda: _from_status("VmHWM")


def _from_status(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return 1024.0 * int(line.split()[1])
    raise LookupError(f"/proc/self/status has no {key}; memory is measured on Linux only")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rollouts", type=int, default=4096, help="of which advantages are made (4096)")
    parser.add_argument("--length", type=int, default=8192, help="tokens of each rollout (8192)")
    parser.add_argument("--tokens", type=int, default=2048, help="micro-batch that both ways make (2048)")
    parser.add_argument(
        "--long", type=int, default=16384, help="micro-batch of the trainer's way alone; 0: none (16384)"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda, of the micro-batches")
    parser.add_argument("--loss", default="ppo", choices=LOSSES)
    parser.add_argument("--way", choices=["trainer", "one-shot"], help="only this, and print JSON")
    given = parser.parse_args(argv)
    if given.way:
        print(json.dumps(forward_and_backward(given.way, given.tokens, given.device, given.loss)))
        return 0
    print(f"advantages of {given.rollouts} rollouts of {given.length} tokens")
    for name, seconds, peak in advantages(given.rollouts, given.length):
        print(f"  {name:<26}{seconds:>10.4f} s  {peak / 2**20:>9.1f} MiB", flush=True)
    print(f"loss {given.loss}, forward and backward, vocabulary {VOCABULARY}, {given.device}")

    def shown(way: str, num_tokens: int) -> dict[str, float]:
        found = in_own_process(way, num_tokens, given.device, given.loss)
        print(
            f"  {way:<10}{num_tokens:>7} tokens{found['seconds']:>10.2f} s  {found['peak_bytes'] / 2**30:>7.2f} GiB",
            flush=True,
        )
        return found

    one_shot, trainer = shown("one-shot", given.tokens), shown("trainer", given.tokens)
    if given.long > given.tokens:
        shown("trainer", given.long)
    assert abs(one_shot["loss"] - trainer["loss"]) < 1e-4 * max(1.0, abs(one_shot["loss"])), "the same loss"
    slower = trainer["seconds"] / one_shot["seconds"]
    share = trainer["peak_bytes"] / one_shot["peak_bytes"]
    kept = slower <= MAX_TIME_RATIO and share < MAX_MEMORY_SHARE
    verdict = "ok" if kept else "MISSED"
    if given.tokens < LEAST_TOKENS:
        verdict = f"not judged: bounds are for {LEAST_TOKENS} tokens and more"
    print(
        f"  trainer / one-shot: time {slower:.2f} (bound {MAX_TIME_RATIO}), memory {share:.3f} "
        f"(bound {MAX_MEMORY_SHARE})   {verdict}"
    )
    return 1 if verdict == "MISSED" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
