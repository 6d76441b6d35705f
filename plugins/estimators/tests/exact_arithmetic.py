"""The estimators' formulas for whole rollouts in exact rational arithmetic, and the program that writes golden/*.json.

Only the last square root is not rational; it is taken with 50 decimal digits. Slow on purpose and shares
no code with the plugin. Advantages for tokens are in `exact_tokens`. `python exact_arithmetic.py` rewrites both files.
"""

from __future__ import annotations

import json
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path

getcontext().prec = 50
FOLDER = Path(__file__).with_name("golden")
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


def flash_reinforce(rewards: Rewards, groups: list[int], num_tokens: list[int]) -> list[Decimal]:
    return [decimal(a) for a in centred(rewards, [0] * len(rewards))]


SOURCES = {
    "reinforce++": "Hu et al. 2025, arXiv 2501.03262",
    "reinforce++-baseline": "Hu et al. 2025, arXiv 2501.03262, the variant with a group mean; equal groups stay at 0",
    "grpo": "Shao et al. 2024, arXiv 2402.03300, section 4.1.2",
    "dr_grpo": "Liu et al. 2025, arXiv 2503.20783, section 3",
    "rloo": "Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740",
    "flash_reinforce": "recipe of NVIDIA's Molt, arXiv 2607.21653; mean over rollouts",
}
ESTIMATORS = {
    "reinforce++": reinforce_pp,
    "reinforce++-baseline": reinforce_pp_baseline,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "flash_reinforce": flash_reinforce,
}

CASES: list[tuple[str, list[str], list[int], list[int]]] = [
    ("one in four is right", ["1", "0", "0", "0"], [0, 0, 0, 0], [3, 5, 2, 7]),
    ("two prompts on different scales", ["1", "0", "5", "3"], [0, 0, 1, 1], [1, 2, 3, 4]),
    ("one prompt is always solved", ["1", "1", "1", "0"], [0, 0, 1, 1], [4, 4, 1, 9]),
    ("a group of one", ["1", "0", "7/10"], [0, 0, 1], [2, 2, 5]),
    ("sizes and order mixed", ["1/2", "-1", "2", "1/3", "0", "1"], [1, 0, 1, 0, 1, 2], [1, 2, 3, 4, 5, 6]),
    ("equal lengths, penalties and partial credit", ["-1/2", "3/4", "1/4", "1"], [0, 0, 0, 0], [8, 8, 8, 8]),
    ("two rollouts", ["1", "0"], [0, 0], [1, 1000]),
    ("prompts of one rollout each", ["1", "0", "1/2", "1/4"], [0, 1, 2, 3], [7, 1, 3, 2]),
    ("tenths", ["1/10"] * 8, [0] * 8, [1, 2, 3, 4, 5, 6, 7, 8]),
]  # fmt: skip


def main() -> None:
    lines = []
    for name, rewards, groups, num_tokens in CASES:
        exact = [Fraction(reward) for reward in rewards]
        for estimator, formula in ESTIMATORS.items():
            advantages = [f"{a:.25f}" for a in formula(exact, groups, num_tokens)]
            case = {
                "name": f"{estimator}: {name}", "source": SOURCES[estimator], "estimator": estimator,
                "rewards": rewards, "groups": groups, "num_tokens": num_tokens, "expected": advantages,
            }  # fmt: skip
            lines.append(json.dumps(case))
    (FOLDER / "rollouts.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    import exact_tokens

    main()
    exact_tokens.main()
