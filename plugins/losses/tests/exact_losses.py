"""Losses, corrections and KL estimates in exact arithmetic, and the program that writes golden/*.json.

Ratios, advantages, weights and counts are fractions, so losses and their gradients are; only logarithms are
taken with 50 decimal digits. Written token by token from the formulas of the papers, by cases instead of minima
and clamps, and shares no code with the plugin. `python exact_losses.py` rewrites the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, getcontext
from fractions import Fraction as F
from itertools import product
from pathlib import Path
from typing import Any

getcontext().prec = 50
FOLDER = Path(__file__).with_name("golden")

PPO = "Schulman et al. 2017, arXiv 1707.06347, eq. 7; two bounds: DAPO, arXiv 2503.14476, eq. 8"
DUAL = "Ye et al. 2019, arXiv 1912.09729, eq. 5"
GSPO = "Zheng et al. 2025, arXiv 2507.18071, eq. 5, 7, 14"
CISPO = "MiniMax-M1 2025, arXiv 2506.13585, eq. 4, 5 (upper bound only)"
AGGREGATION = {
    "token-mean": "DAPO, arXiv 2503.14476, eq. 8",
    "seq-mean-token-mean": "GRPO, arXiv 2402.03300, eq. 3",
    "seq-mean-token-sum": "Dr. GRPO, arXiv 2503.20783, without its constant length",
    "prompt-mean-token-mean": "mean over prompts of token-mean within a prompt, by definition",
}
KL = "Schulman 2020, Approximating KL Divergence: k1, k2, k3"
STEERING = "Ziegler et al. 2019, arXiv 1909.08593, section 2.2"
TIS = "Ionides 2008, Truncated Importance Sampling"
MASKS = "Liu et al. 2025, When Speed Kills Stability: masks by token, sequence and geometric mean"
TWO_OUTCOMES = "KL divergence and total variation of (token, any other token), by definition"
ENTROPY = "Williams and Peng 1991: bonus for entropy"


def dec(value: F) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def ln(value: F) -> Decimal:
    return dec(value).ln()


def text(value: F | Decimal | int) -> str:
    return f"{value:.30f}" if isinstance(value, Decimal) else str(value)


# one window: two prompts, three rollouts; the second rollout of the first prompt is far longer than the micro-batch
# shows, as its other tokens lie elsewhere
WINDOW = {"num_tokens": 20, "num_rollouts": 3, "num_groups": 2}
ROLLOUT = [0, 0, 1, 1, 1, 2]
GROUP = [0, 0, 0, 0, 0, 1]
ROLLOUT_TOKENS = {0: 2, 1: 13, 2: 5}
GROUP_TOKENS = {0: 15, 1: 5}
RATIOS = [F(3, 2), F(1, 2), F(1), F(5, 4), F(9, 10), F(4)]
ADVANTAGES = [F(1), F(1), F(-2), F(-1, 3), F(3, 4), F(-1)]
LOGPROBS = [F(-1, 2), F(-3), F(-1), F(-7, 4), F(-1, 8), F(-2)]
ROLLOUT_RATIO = {0: F(10003, 10000), 1: F(9998, 10000), 2: F(10008, 10000)}
WEIGHTS = [F(1), F(0), F(3, 2), F(1, 2), F(2), F(0)]
REFERENCE_RATIOS = [F(2), F(1, 2), F(1), F(5, 4), F(1, 20), F(7)]


def coefficient(name: str, token: int) -> F:
    if name == "token-mean":
        return F(1, WINDOW["num_tokens"])
    if name == "seq-mean-token-sum":
        return F(1, WINDOW["num_rollouts"])
    if name == "seq-mean-token-mean":
        return F(1, WINDOW["num_rollouts"]) / ROLLOUT_TOKENS[ROLLOUT[token]]
    return F(1, WINDOW["num_groups"]) / GROUP_TOKENS[GROUP[token]]


def clipped(r: F, a: F, low: F, high: F, dual: F | None) -> tuple[F, F, int]:
    """Loss term, its derivative by log π, and whether a bound holds it."""
    if a > 0 and r > 1 + high:
        return -(1 + high) * a, F(0), 1
    if a < 0 and r < 1 - low:
        return -(1 - low) * a, F(0), 1
    if a < 0 and dual is not None and r > dual:
        return -dual * a, F(0), 1
    return -r * a, -r * a, 0


def kl_of(q: F, form: str, by_sampler: bool) -> tuple[Decimal, Decimal]:
    """Estimate and its derivative by log π for q = π / π_ref; none where the bound of 10 holds it."""
    log, ratio = ln(q), dec(q)
    if form == "k1":
        return log, Decimal(1)
    if form == "k2":
        value, slope = log * log / 2, log
    elif by_sampler:
        value, slope = ratio - 1 - log, ratio - 1
    else:
        value, slope = 1 / ratio - 1 + log, 1 - 1 / ratio
    return (value, slope) if value < 10 else (Decimal(10), Decimal(0))


def loss_case(
    name: str, loss: str, source: str, *, aggregation: str = "token-mean", low: F = F(1, 5), high: F = F(1, 5),
    dual: F | None = None, cap: F = F(2), weights: list[F] | None = None, kl: tuple[str, str, F] | None = None,
    entropy: F = F(0), ratios: list[F] = RATIOS, advantages: list[F] = ADVANTAGES,
) -> dict[str, Any]:  # fmt: skip
    weights = weights or [F(1)] * 6
    total, gradient, of_tokens, num_clipped = Decimal(0), [], F(0), 0
    for i, (r, a, w) in enumerate(zip(ratios, advantages, weights, strict=True)):
        c = coefficient(aggregation, i)
        if loss == "cispo":
            bounded = min(r, cap)
            term, slope, is_clipped = -bounded * a * LOGPROBS[i], -bounded * a, int(r > cap)
        elif loss == "gspo":
            term, slope, is_clipped = clipped(ROLLOUT_RATIO[ROLLOUT[i]], a, low, high, None)
        else:
            term, slope, is_clipped = clipped(r, a, low, high, dual)
        total += dec(c * w * term)
        of_tokens += w * term
        num_clipped += is_clipped
        gradient.append(dec(c * w * slope))
    kl_sum = Decimal(0)
    if kl is not None:
        form, reference, coef = kl
        of_reference = ratios if reference == "sampler" else REFERENCE_RATIOS
        for i, q in enumerate(of_reference):
            value, slope = kl_of(q, form, reference == "sampler")
            kl_sum += value
            total += dec(coef) * value / WINDOW["num_tokens"]
            gradient[i] += dec(coef) * slope / WINDOW["num_tokens"]
    entropies = [F(i + 1, 4) for i in range(6)]
    total -= dec(entropy * sum(entropies) / WINDOW["num_tokens"])
    options: dict[str, Any] = {"aggregation": aggregation}
    if loss == "cispo":
        options["cap"] = text(cap)
    else:
        options |= {"clip_low": text(low), "clip_high": text(high)}
    if dual is not None:
        options["dual_clip"] = text(dual)
    if kl is not None:
        options |= {"kl_form": kl[0], "kl_reference": kl[1], "kl_coef": text(kl[2])}
    if entropy:
        options["entropy_coef"] = text(entropy)
    return {
        "name": name, "source": source, "loss": loss, "options": options, "window": WINDOW,
        "ratios": list(map(text, ratios)), "advantages": list(map(text, advantages)),
        "weights": list(map(text, weights)), "logprobs": list(map(text, LOGPROBS)),
        "entropies": list(map(text, entropies)), "reference_ratios": list(map(text, REFERENCE_RATIOS)),
        "rollout_ratios": [text(ROLLOUT_RATIO[rollout]) for rollout in ROLLOUT], "rollout": ROLLOUT, "group": GROUP,
        "rollout_tokens": [ROLLOUT_TOKENS[rollout] for rollout in ROLLOUT],
        "group_tokens": [GROUP_TOKENS[group] for group in GROUP],
        "expected": {
            "loss": text(total), "terms": text(of_tokens), "num_clipped": num_clipped, "kl": text(kl_sum),
            "gradient": list(map(text, gradient)), "entropy_gradient": text(-dec(entropy) / WINDOW["num_tokens"]),
        },
    }  # fmt: skip


SOURCES = {"ppo": PPO, "gspo": GSPO, "cispo": CISPO}
TIGHT = {"low": F(3, 10000), "high": F(4, 10000)}


def losses() -> Iterator[dict[str, Any]]:
    def bounds(loss: str) -> dict[str, F]:
        return TIGHT if loss == "gspo" else {}

    for loss, aggregation in product(SOURCES, AGGREGATION):
        source = f"{SOURCES[loss]}; {AGGREGATION[aggregation]}"
        yield loss_case(f"{loss}, {aggregation}", loss, source, aggregation=aggregation, **bounds(loss))
    ones, minus = [F(1)] * 6, [F(-1)] * 6
    for name, advantages in (("good", ones), ("bad", minus), ("worthless", [F(0)] * 6)):
        for low, high in ((F(1, 5), F(1, 5)), (F(1, 10), F(3, 10)), (F(0), F(0))):
            what = f"ppo, all tokens {name}, bounds {low} and {high}"
            yield loss_case(what, "ppo", PPO, low=low, high=high, advantages=advantages)
        yield loss_case(f"gspo, all tokens {name}", "gspo", GSPO, advantages=advantages, **TIGHT)
        yield loss_case(f"cispo, all tokens {name}", "cispo", CISPO, advantages=advantages)
    for dual in (F(11, 10), F(3), F(5)):
        yield loss_case(f"ppo, dual clip {dual}", "ppo", DUAL, dual=dual)
        yield loss_case(f"ppo, dual clip {dual}, all bad", "ppo", DUAL, dual=dual, advantages=minus)
    for cap in (F(1), F(6, 5), F(100)):
        yield loss_case(f"cispo, cap {cap}", "cispo", CISPO, cap=cap)
    yield loss_case("on-policy, ratio 1 everywhere", "ppo", PPO, ratios=ones)
    for loss in SOURCES:
        source = f"{SOURCES[loss]}; {TIS}"
        yield loss_case(f"{loss}, weights", loss, source, weights=WEIGHTS, **bounds(loss))
        what = f"{loss}, weights, tokens left out stay in the mean over rollouts"
        aggregation = "seq-mean-token-mean"
        yield loss_case(what, loss, source, weights=WEIGHTS, aggregation=aggregation, **bounds(loss))
        yield loss_case(f"{loss}, all left out", loss, source, weights=[F(0)] * 6, **bounds(loss))
        for form, reference in product(("k1", "k2", "k3"), ("model", "sampler")):
            if (form, reference) != ("k1", "sampler"):
                what = f"{loss}, {form} against {reference}"
                kl = (form, reference, F(1, 10))
                yield loss_case(what, loss, f"{SOURCES[loss]}; {KL}", kl=kl, **bounds(loss))
        yield loss_case(f"{loss}, entropy bonus", loss, ENTROPY, entropy=F(1, 100), **bounds(loss))


# sampled tokens with probability μ when they were drawn and π before the step; rollouts of 3, 2 and 1 tokens
BEHAVIOUR = [F(1, 2), F(1, 4), F(1, 5), F(1, 2), F(1, 10), F(2, 5)]
CURRENT = [F(1, 2), F(1, 2), F(1, 10), F(9, 20), F(1, 100), F(1, 2)]
OF_ROLLOUT = [0, 0, 0, 1, 1, 2]


def two_outcomes(gate: str, p: F, q: F) -> Decimal:
    if gate == "tv":
        return abs(dec(p - q))
    return dec(p) * ln(p / q) + dec(1 - p) * ln((1 - p) / (1 - q))


def keeps(level: str, gate: str, low: F | None, high: F, token: int) -> bool:
    """Whether the statistic lies within the band, ends included; powers instead of roots."""
    own = [token] if level == "token" else [i for i, r in enumerate(OF_ROLLOUT) if r == OF_ROLLOUT[token]]
    if gate == "ratio":
        statistic = F(1)
        for i in own:
            statistic *= CURRENT[i] / BEHAVIOUR[i]
        power = len(own) if level == "geo" else 1
        return (low is None or low**power <= statistic) and statistic <= high**power
    mean = sum((two_outcomes(gate, BEHAVIOUR[i], CURRENT[i]) for i in own), Decimal(0)) / len(own)
    return (low is None or dec(low) <= mean) and mean <= dec(high)


def correction_case(level: str, gate: str, mode: str, low: F | None, high: F) -> dict[str, Any]:
    weights, kept = [], []
    for i, (p, q) in enumerate(zip(BEHAVIOUR, CURRENT, strict=True)):
        ratio = q / p
        kept.append(mode != "mask" or keeps(level, gate, low, high, i))
        if mode == "mask":
            ratio = ratio if kept[-1] else F(0)
        elif ratio > high:
            ratio = high
        elif mode == "clip" and low is not None and ratio < low:
            ratio = low
        weights.append(ratio)
    band = [high] if low is None else [low, high]
    source = TIS if mode == "trunc" else MASKS if gate == "ratio" else TWO_OUTCOMES
    return {
        "name": f"{level}, {gate}, {mode}, {' to '.join(map(text, band))}", "source": source,
        "options": {"level": level, "gate": gate, "mode": mode, "threshold": list(map(text, band))},
        "behaviour": list(map(text, BEHAVIOUR)), "current": list(map(text, CURRENT)), "rollout": OF_ROLLOUT,
        "expected": {"weights": list(map(text, weights)), "kept": kept},
    }  # fmt: skip


BANDS: dict[str, list[tuple[F | None, F]]] = {
    # of the second rollout the product is 9/100 and its root 3/10: the last band tells levels seq and geo apart
    "ratio": [(F(1, 3), F(2)), (None, F(1)), (F(17, 20), F(11, 10)), (F(3), F(4)), (F(1, 5), F(6, 5))],
    "binary_kl": [(None, F(1, 20)), (None, F(1, 1000)), (F(0), F(1, 5))],
    "tv": [(None, F(1, 10)), (None, F(1, 1000)), (F(0), F(1, 5))],
}


def corrections() -> Iterator[dict[str, Any]]:
    for gate, bands in BANDS.items():
        for level, (low, high) in product(("token", "seq", "geo"), bands):
            if level != "geo" or gate == "ratio":
                yield correction_case(level, gate, "mask", low, high)
    for mode, (low, high) in product(("clip", "trunc"), BANDS["ratio"]):
        yield correction_case("token", "ratio", mode, low, high)


def kl_forms() -> Iterator[dict[str, Any]]:
    points = [F(1), F(2), F(1, 2), F(3, 4), F(20), F(1, 40), F(10**6), F(1, 10**6)]
    for (form, sampler), q in product((("k1", False), ("k2", False), ("k3", False), ("k3", True)), points):
        value, slope = kl_of(q, form, sampler)
        yield {
            "name": f"{form}{', sampled by the reference' if sampler else ''} at ratio {q}", "source": KL,
            "form": form, "sampled_by_reference": sampler, "ratio": text(q),
            "expected": {"value": text(value), "gradient": text(slope)},
        }  # fmt: skip


def steering() -> Iterator[dict[str, Any]]:
    """coef · (1 + clip(KL / target − 1, ±1/5) · n / horizon), from 1/10 with a target of 1/50."""
    for kl in (F(1, 50), F(11, 500), F(1), F(0), F(9, 500)):
        coefs, coef = [], F(1, 10)
        for n in (8, 32):
            error = kl / F(1, 50) - 1
            error = F(1, 5) if error > F(1, 5) else F(-1, 5) if error < F(-1, 5) else error
            coef *= 1 + error * F(n, 100)
            coefs.append(coef)
        yield {
            "name": f"measured KL {kl}", "source": STEERING, "start": "1/10", "target": "1/50", "horizon": 100,
            "kl": text(kl), "num_rollouts": [8, 32], "expected": list(map(text, coefs)),
        }  # fmt: skip


def main() -> None:
    for made in (losses, corrections, kl_forms, steering):
        lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in made())
        (FOLDER / f"{made.__name__}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
