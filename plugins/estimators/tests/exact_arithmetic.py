"""The estimators' formulas in exact rational arithmetic, and the program that writes golden.json.

Only the last square root is not rational; it is taken with 50 decimal digits. Slow on purpose and shares
no code with the plugin. `python exact_arithmetic.py` rewrites golden.json next to it.
"""

from __future__ import annotations

import json
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path

getcontext().prec = 50
GOLDEN = Path(__file__).with_name("golden.json")
Rewards = list[Fraction]


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def centred(rewards: Rewards, groups: list[int]) -> Rewards:
    def mean(group: int) -> Fraction:
        own = [reward for reward, other in zip(rewards, groups, strict=True) if other == group]
        return sum(own, Fraction(0)) / len(own)

    return [reward - mean(group) for reward, group in zip(rewards, groups, strict=True)]


def whitened(advantages: Rewards, num_tokens: list[int]) -> list[Decimal]:
    tokens = [a for a, count in zip(advantages, num_tokens, strict=True) for _ in range(count)]
    mean = sum(tokens, Fraction(0)) / len(tokens)
    variance = sum(((a - mean) ** 2 for a in tokens), Fraction(0)) / len(tokens)
    deviation = decimal(max(variance, Fraction(1, 10**8))).sqrt()
    return [decimal(a - mean) / deviation for a in advantages]


def reinforce_pp(rewards: Rewards, groups: list[int], num_tokens: list[int]) -> list[Decimal]:
    return whitened(rewards, num_tokens)


def reinforce_pp_baseline(rewards: Rewards, groups: list[int], num_tokens: list[int]) -> list[Decimal]:
    advantages = centred(rewards, groups)
    pairs = list(zip(advantages, groups, strict=True))
    flat = {group for group in groups if all(a == 0 for a, other in pairs if other == group)}
    white = whitened(advantages, num_tokens)
    return [Decimal(0) if group in flat else a for a, group in zip(white, groups, strict=True)]


def grpo(rewards: Rewards, groups: list[int], num_tokens: list[int]) -> list[Decimal]:
    advantages = centred(rewards, groups)
    result = []
    for advantage, group in zip(advantages, groups, strict=True):
        squares = [a * a for a, other in zip(advantages, groups, strict=True) if other == group]
        variance = sum(squares, Fraction(0)) / max(len(squares) - 1, 1)
        result.append(decimal(advantage) / (decimal(variance).sqrt() + Decimal("1e-9")))
    return result


def dr_grpo(rewards: Rewards, groups: list[int], num_tokens: list[int]) -> list[Decimal]:
    return [decimal(a) for a in centred(rewards, groups)]


def rloo(rewards: Rewards, groups: list[int], num_tokens: list[int]) -> list[Decimal]:
    result = []
    for i, group in enumerate(groups):
        others = [rewards[k] for k, other in enumerate(groups) if other == group and k != i]
        baseline = sum(others, Fraction(0)) / len(others) if others else rewards[i]
        result.append(decimal(rewards[i] - baseline))
    return result


ESTIMATORS = {
    "reinforce++": reinforce_pp,
    "reinforce++-baseline": reinforce_pp_baseline,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
}

CASES: list[tuple[str, list[str], list[int], list[int]]] = [
    ("one in four is right", ["1", "0", "0", "0"], [0, 0, 0, 0], [3, 5, 2, 7]),
    ("two prompts on different scales", ["1", "0", "5", "3"], [0, 0, 1, 1], [1, 2, 3, 4]),
    ("one prompt is always solved", ["1", "1", "1", "0"], [0, 0, 1, 1], [4, 4, 1, 9]),
    ("a group of one", ["1", "0", "7/10"], [0, 0, 1], [2, 2, 5]),
    ("sizes and order mixed", ["1/2", "-1", "2", "1/3", "0", "1"], [1, 0, 1, 0, 1, 2], [1, 2, 3, 4, 5, 6]),
    ("equal lengths, penalties and partial credit", ["-1/2", "3/4", "1/4", "1"], [0, 0, 0, 0], [8, 8, 8, 8]),
    ("tenths", ["1/10"] * 8, [0] * 8, [1, 2, 3, 4, 5, 6, 7, 8]),
]  # fmt: skip


def main() -> None:
    cases: list[dict[str, object]] = []
    for name, rewards, groups, num_tokens in CASES:
        exact = [Fraction(reward) for reward in rewards]
        case: dict[str, object] = {
            "name": name,
            "rewards": rewards,
            "groups": groups,
            "num_tokens": num_tokens,
        }
        for estimator, formula in ESTIMATORS.items():
            case[estimator] = [f"{a:.25f}" for a in formula(exact, groups, num_tokens)]
        cases.append(case)
    GOLDEN.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
