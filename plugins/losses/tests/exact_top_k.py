"""Score centering and the top-k reverse KL in exact arithmetic, and the program that writes golden/top_k.json.

Distributions are fractions over a whole vocabulary, gradients are with respect to its logits, and both come from their
definitions: the mean score from a sum over all tokens, the divergence from the distribution in which all but the likely
tokens are one. Shares no code with the plugin. `python exact_top_k.py` rewrites the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction as F
from pathlib import Path
from typing import Any

from exact_losses import dec, ln, text

CENTERING = "Marek and Ryabinin 2026, arXiv 2609.20807: the mean score under the sampler, by definition"
REVERSE_KL = "Agarwal et al. 2023, arXiv 2306.13649; tail as in arXiv 2608.14728"
# policy and sampler; behind the third token the sampler has twice the policy's probability, so the tail is proportional
P = [F(3, 10), F(4, 10), F(1, 10), F(1, 20), F(1, 10), F(1, 20)]
Q = [F(3, 10), F(1, 5), F(1, 10), F(1, 10), F(1, 5), F(1, 10)]
T = [F(1, 2), F(1, 8), F(1, 8), F(1, 16), F(1, 8), F(1, 16)]


def weight(ratio: F, mode: str, band: list[F]) -> F:
    if mode == "off":
        return F(1)
    low, high = (F(-1), band[0]) if len(band) == 1 else band
    if mode == "mask":
        return ratio if low <= ratio <= high else F(0)
    return high if ratio > high else low if mode == "clip" and ratio < low else ratio


def mean_score(p: list[F], q: list[F], mode: str, band: list[F]) -> list[F]:
    """Gradient to each logit: Σ_v q_v f(p_v / q_v) (1[u = v] − p_u)."""
    weights = [q_v * weight(p_v / q_v, mode, band) if q_v else F(0) for p_v, q_v in zip(p, q, strict=True)]
    return [w_u - p_u * sum(weights) for w_u, p_u in zip(weights, p, strict=True)]


def centering_cases() -> Iterator[dict[str, Any]]:
    settings: list[tuple[str, list[F]]] = [
        ("off", []),
        ("mask", [F(3, 5), F(3)]),
        ("mask", [F(1, 4), F(3, 2)]),
        ("mask", [F(5)]),
        ("clip", [F(3, 4), F(3, 2)]),
        ("trunc", [F(1)]),
        ("trunc", [F(3, 2)]),
    ]
    pairs = {"sampler differs": (P, Q), "sampler is the policy": (P, P), "sampler never draws a likely token": (P, [
        F(2, 5), F(0), F(1, 5), F(1, 10), F(1, 5), F(1, 10),
    ])}  # fmt: skip
    for name, (p, q) in pairs.items():
        for mode, band in settings:
            for k in (3, 4, 6) if mode in ("off", "mask") else (3,):
                yield {
                    "name": f"{name}, {mode} {' to '.join(map(text, band))}, k = {k}",
                    "source": CENTERING, "kind": "centering", "p": p, "q": q, "k": k, "mode": mode, "threshold": band,
                    "gradient": mean_score(p, q, mode, band),
                }  # fmt: skip


def coarse(values: list[F], k: int) -> list[F]:
    """The rest as one more entry."""
    return [*values[:k], sum(values[k:], F(0))]


def reverse_kl_cases() -> Iterator[dict[str, Any]]:
    pairs = {
        "apart": (P, T),
        "equal": (P, P),
        "apart the other way": (T, P),
        "equal tails": (P, [P[1], P[0], *P[2:]]),
    }
    for name, (p, t) in pairs.items():
        for k in (1, 2, 3, 6):
            logs = [ln(a / b) if a else Decimal(0) for a, b in zip(coarse(p, k), coarse(t, k), strict=True)]
            value = sum((dec(a) * log for a, log in zip(coarse(p, k), logs, strict=True)), Decimal(0))
            of_token = [logs[min(token, k)] for token in range(len(p))]
            yield {
                "name": f"{name}, k = {k}", "source": REVERSE_KL, "kind": "reverse_kl", "p": p, "t": t, "k": k,
                "value": value, "gradient": [dec(p[u]) * (of_token[u] - value) for u in range(len(p))],
            }  # fmt: skip


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return text(value) if isinstance(value, F | Decimal) else value


if __name__ == "__main__":
    made = [
        {key: plain(value) for key, value in case.items()}
        for case in (*centering_cases(), *reverse_kl_cases())
    ]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in made)
    Path(__file__).with_name("golden").joinpath("top_k.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(len(made), "cases")
