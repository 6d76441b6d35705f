"""What TRL 1.16 computes: losses with gradients, and advantages. Runs in a Python that has trl; knows nothing of Molt.

    python trl_values.py MODEL_FOLDER

One JSON object on the last line: the inputs that were made here, and for each case what came out. Losses are
`GRPOTrainer._compute_loss` itself, called with the log-probs given instead of a model; advantages come from the
trainers' own `_generate_and_score_completions` with a reward function that returns what is wanted.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl import __version__ as version

BATCH, LENGTH = 4, 6
LENGTHS = (6, 3, 1, 5)


def inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(scale: float) -> torch.Tensor:
        return scale * torch.randn(BATCH, LENGTH, generator=generator, dtype=torch.float64)

    old = -0.1 - 2 * torch.rand(BATCH, LENGTH, generator=generator, dtype=torch.float64)
    return {
        "mask": torch.tensor([[int(t < length) for t in range(LENGTH)] for length in LENGTHS]),
        "old": old,
        "new": old + normal(0.3),
        "reference": old + normal(0.5),
        "entropy": 1 + normal(0.2).abs(),
        "weights": torch.rand(BATCH, LENGTH, generator=generator, dtype=torch.float64) * 2,
        "advantages": torch.tensor([1.0, -0.5, 2.0, -1.5], dtype=torch.float64),
    }


LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "grpo, two bounds": {"loss_type": "grpo", "epsilon_low": 0.1, "epsilon_high": 0.3},
    "grpo, delta": {"loss_type": "grpo", "delta": 1.25},
    "bnpo": {"loss_type": "bnpo"},
    "dapo": {"loss_type": "dapo"},
    "dapo, beta": {"loss_type": "dapo", "beta": 0.1},
    "grpo, beta": {"loss_type": "grpo", "beta": 0.1},
    "dapo, entropy": {"loss_type": "dapo", "entropy_coef": 0.01},
    "dapo, weights": {"loss_type": "dapo", "weighted": True},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 0.05, "epsilon_high": 0.1},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.2},
}  # fmt: skip


class Alone:
    """An accelerator of one process."""

    num_processes = 1

    def gather(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def reduce(self, value: torch.Tensor, reduction: str) -> torch.Tensor:
        return value


def loss_and_gradient(given: dict[str, torch.Tensor], settings: dict[str, Any]) -> dict[str, Any]:
    new = given["new"].clone().requires_grad_()
    beta, weighted = settings.get("beta", 0.0), settings.get("weighted", False)
    entropy_coef = settings.get("entropy_coef", 0.0)
    trainer = SimpleNamespace(
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None, beta=beta,
        importance_sampling_level=settings.get("importance_sampling_level", "token"), loss_type=settings["loss_type"],
        epsilon_low=settings.get("epsilon_low", 0.2), epsilon_high=settings.get("epsilon_high", 0.2),
        args=SimpleNamespace(delta=settings.get("delta"), use_bias_correction_kl=False, steps_per_generation=1),
        use_vllm=weighted, vllm_importance_sampling_correction=weighted, model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1, max_completion_length=LENGTH, accelerator=Alone(),
        _entropy_bonus_enabled=entropy_coef != 0, entropy_coef=entropy_coef, use_adaptive_entropy=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *args, **more: (new, given["entropy"], None),
    )  # fmt: skip
    trainer.accelerator.sync_gradients = True
    batch = {
        "prompt_ids": torch.zeros(BATCH, 1, dtype=torch.long), "prompt_mask": torch.ones(BATCH, 1, dtype=torch.long),
        "completion_ids": torch.zeros(BATCH, LENGTH, dtype=torch.long), "completion_mask": given["mask"],
        "advantages": given["advantages"], "old_per_token_logps": given["old"],
        "ref_per_token_logps": given["reference"], "importance_sampling_ratio": given["weights"],
        "num_items_in_batch": given["mask"].sum(),
    }  # fmt: skip
    loss = GRPOTrainer._compute_loss(trainer, None, batch)
    loss.backward()
    return {"settings": settings, "loss": loss.item(), "gradient": new.grad.tolist()}


REWARDS: dict[str, list[float | None]] = {
    "one in four is right": [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
    "fractions": [0.5, -1.0, 2.0, 0.25, 0.1, 0.7, 0.3, 0.9],
    "equal": [0.1] * 8,
    "one abstains": [1.0, None, 0.0, 0.5, 0.25, 0.5, 0.75, 1.0],
}
GROUP = 4
TRAINERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "grpo": (GRPOTrainer, GRPOConfig, {"scale_rewards": "group"}),
    "dr_grpo": (GRPOTrainer, GRPOConfig, {"scale_rewards": "none"}),
    "rloo": (RLOOTrainer, RLOOConfig, {"beta": 0.0}),
}


def advantages(model: str, name: str, rewards: list[float | None]) -> list[float]:
    kind, config, more = TRAINERS[name]
    args = config(
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, report_to="none", num_generations=GROUP,
        per_device_train_batch_size=len(rewards), max_completion_length=2, **more,
    )  # fmt: skip
    trainer = kind(
        model=model, args=args, train_dataset=Dataset.from_list([{"prompt": "1+1"}]),
        reward_funcs=lambda prompts, **_: rewards,
    )  # fmt: skip
    made = trainer._generate_and_score_completions([{"prompt": "1+1"} for _ in rewards])
    found: list[float] = made["advantages"].tolist()
    return found


def main() -> None:
    given = inputs()
    result = {
        "version": version,
        "inputs": {name: tensor.tolist() for name, tensor in given.items()},
        "losses": {name: loss_and_gradient(given, settings) for name, settings in LOSSES.items()},
        "group_size": GROUP,
        "rewards": REWARDS,
        "advantages": {
            name: {case: advantages(sys.argv[1], name, rewards) for case, rewards in REWARDS.items()}
            for name in TRAINERS
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
