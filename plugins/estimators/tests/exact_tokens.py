"""Advantages for tokens in exact arithmetic: returns, GAE, the KL penalty in the reward, distillation.

Sums are written out from every token to the end of its rollout, where the plugin goes backwards once. Ratios,
rewards and values are fractions; logarithms and the square root of whitening have 50 decimal digits. Shares no code
with the plugin. `main` writes golden/tokens.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction as F
from itertools import pairwise
from typing import Any

from exact_arithmetic import FOLDER, decimal

REINFORCE = "Hu et al. 2025, arXiv 2501.03262, eq. of the return with a KL penalty for each token"
GAE = "Schulman et al. 2015, arXiv 1506.02438, eq. 11, 16"
DISTILL = "Agarwal et al. 2023, arXiv 2306.13649, reverse KL on the student's samples; Lu 2025, On-Policy Distillation"
PENALTY = "Ouyang et al. 2022, arXiv 2203.02155, eq. 2; Schulman 2020 for k1, k2, k3"

STARTS = [0, 3, 3, 5, 6]
"""Rollouts of 3, 0, 2 and 1 tokens: a rank may hold one whose tokens are elsewhere only in tests, never in runs."""
REWARDS = [F(0), F(1, 2), F(1, 2), F(0), F(-1), F(2)]
VALUES = [F(1, 4), F(1, 2), F(3, 4), F(-1, 2), F(-3, 4), F(3, 2)]
RATIOS = [F(1), F(3, 2), F(1, 2), F(5, 4), F(1, 20), F(8)]
"""To the reference."""
SAMPLER_RATIOS = [F(4, 5), F(1), F(3), F(1, 40), F(6, 5), F(20)]


def rollout_of(token: int) -> range:
    return next(range(a, b) for a, b in pairwise(STARTS) if a <= token < b)


def kl(ratio: F, form: str, reference: str = "model") -> Decimal:
    log = decimal(ratio).ln()
    if form == "k1":
        return log
    k3 = decimal(1 / ratio) - 1 + log if reference == "model" else decimal(ratio) - 1 - log
    return min(log * log / 2 if form == "k2" else k3, Decimal(10))


def discounted(values: list[Decimal], discount: F) -> list[Decimal]:
    return [
        sum((decimal(discount ** (s - t)) * values[s] for s in range(t, rollout_of(t).stop)), Decimal(0))
        for t in range(len(values))
    ]


def whitened(values: list[Decimal]) -> list[Decimal]:
    mean = sum(values, Decimal(0)) / len(values)
    variance = sum(((value - mean) ** 2 for value in values), Decimal(0)) / len(values)
    return [(value - mean) / max(variance, Decimal("1e-8")).sqrt() for value in values]


def penalised(coef: F, form: str, reference: str) -> list[Decimal]:
    ratios = RATIOS if reference == "model" else SAMPLER_RATIOS
    return [decimal(r) - decimal(coef) * kl(q, form, reference) for r, q in zip(REWARDS, ratios, strict=True)]


PENALTIES = [(form, reference) for reference in ("model", "sampler") for form in ("k1", "k2", "k3")]


def at_the_ends() -> list[F]:
    ends = {rollout_of(t).stop - 1: sum((REWARDS[s] for s in rollout_of(t)), F(0)) for t in range(6)}
    return [ends.get(t, F(0)) for t in range(6)]


def case(name: str, source: str, estimator: str, options: dict[str, Any], advantages: list[Decimal],
         returns: list[Decimal] | None = None) -> dict[str, Any]:  # fmt: skip
    def texts(values: list[Decimal]) -> list[str]:
        return [f"{value:.25f}" for value in values]

    return {
        "name": f"{estimator}: {name}", "source": source, "estimator": estimator, "options": options,
        "starts": STARTS, "rewards": list(map(str, REWARDS)), "values": list(map(str, VALUES)),
        "ratios": list(map(str, RATIOS)), "sampler_ratios": list(map(str, SAMPLER_RATIOS)),
        "expected": texts(advantages),
        "returns": None if returns is None else texts(returns),
    }  # fmt: skip


def reinforce() -> Iterator[dict[str, Any]]:
    for gamma in (F(1), F(9, 10), F(1, 2)):
        for turn in (False, True):
            rewards = list(map(decimal, REWARDS if turn else at_the_ends()))
            options = {"gamma": str(gamma), "turn_rewards": turn, "whiten": False}
            raw = discounted(rewards, gamma)
            what = f"gamma {gamma}, rewards {'where they were earned' if turn else 'at the end'}"
            yield case(what, REINFORCE, "reinforce++", options, raw)
            yield case(
                f"{what}, whitened", REINFORCE, "reinforce++", options | {"whiten": True}, whitened(raw)
            )
    for form, reference in PENALTIES:
        raw = discounted(penalised(F(1, 10), form, reference), F(1, 2))
        options = {
            "gamma": "1/2", "turn_rewards": True, "whiten": False, "kl_coef": "1/10", "kl_form": form,
            "kl_reference": reference,
        }  # fmt: skip
        yield case(f"penalty {form} against the {reference}", PENALTY, "reinforce++", options, raw)


def gae() -> Iterator[dict[str, Any]]:
    def advantages(rewards: list[Decimal], gamma: F, lam: F) -> list[Decimal]:
        deltas = []
        for t, reward in enumerate(rewards):
            following = VALUES[t + 1] if t + 1 < rollout_of(t).stop else F(0)
            deltas.append(reward + decimal(gamma * following - VALUES[t]))
        return discounted(deltas, gamma * lam)

    settings = [(F(1), F(1)), (F(1), F(0)), (F(9, 10), F(19, 20)), (F(1, 2), F(1, 2)), (F(99, 100), F(1))]
    for gamma, lam in settings:
        raw = advantages(list(map(decimal, REWARDS)), gamma, lam)
        returns = [a + decimal(v) for a, v in zip(raw, VALUES, strict=True)]
        options = {"gamma": str(gamma), "lam": str(lam), "whiten": False}
        yield case(f"gamma {gamma}, lambda {lam}", GAE, "gae", options, raw, returns)
        what, options = f"gamma {gamma}, lambda {lam}, whitened", options | {"whiten": True}
        yield case(what, GAE, "gae", options, whitened(raw), returns)
    for form, reference in PENALTIES:
        raw = advantages(penalised(F(1, 10), form, reference), F(9, 10), F(1, 2))
        returns = [a + decimal(v) for a, v in zip(raw, VALUES, strict=True)]
        options = {
            "gamma": "9/10", "lam": "1/2", "whiten": False, "kl_coef": "1/10", "kl_form": form,
            "kl_reference": reference,
        }  # fmt: skip
        yield case(
            f"penalty {form} against the {reference}", f"{GAE}; {PENALTY}", "gae", options, raw, returns
        )


def distill() -> Iterator[dict[str, Any]]:
    for coef in (F(1), F(1, 4)):
        advantages = [-decimal(coef) * kl(q, "k1") for q in RATIOS]
        yield case(f"coefficient {coef}", DISTILL, "on_policy_distill", {"kl_coef": str(coef)}, advantages)


def main() -> None:
    lines = [json.dumps(one, ensure_ascii=False) for made in (reinforce, gae, distill) for one in made()]
    (FOLDER / "tokens.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
