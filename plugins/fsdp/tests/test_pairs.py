"""Each pair of algorithms that docs/compatibility.md allows takes a step that is finite."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from every_algorithm import WIDE, Choice, settings
from molt_plugin_estimators import spec as estimators
from molt_plugin_losses import correction_spec as corrections
from molt_plugin_losses import spec as losses
from tiny_trainer import started, train_batch

from molt_core.experience import TrainItem

DOCUMENT = Path(__file__).parents[3] / "docs" / "compatibility.md"
LOSSES = {
    "ppo": losses.PPO,
    "gspo": losses.GSPO,
    "cispo": losses.CISPO,
    "topk_reverse_kl": losses.TOPK_REVERSE_KL,
}
CORRECTIONS = {"importance": corrections.IMPORTANCE, "score-centering": corrections.SCORE_CENTERING}
ESTIMATORS = {
    one.name: one for one in (estimators.REINFORCE_PP, estimators.GAE, estimators.ON_POLICY_DISTILL)
}
"""Those that make advantages on the trainer; what the others make arrives with the items."""
OPTIONS: dict[str, dict[str, Any]] = {
    "ppo": WIDE, "topk_reverse_kl": {"top_k": 3}, "score-centering": {"top_k": 3}, "reinforce++": {"gamma": 0.9},
}  # fmt: skip


def chosen(kinds: dict[str, Any], name: str, **more: Any) -> tuple[Any, dict[str, Any]] | None:
    return (kinds[name], {**OPTIONS.get(name, {}), **more}) if name in kinds else None


def table(title: str) -> list[tuple[str, str]]:
    """(row, column) of the cells that say yes."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {re.escape(title)}$(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    columns = [column.strip("`") for column in lines[0][1:]]
    pairs = [(row[0], columns[at]) for row in lines[2:] for at, cell in enumerate(row[1:]) if cell == "yes"]
    assert pairs
    return pairs


def choices() -> dict[str, Choice]:
    made = {
        f"{loss}, {correction}": Choice(loss=chosen(LOSSES, loss), correction=chosen(CORRECTIONS, correction))
        for loss, correction in table("Loss and correction")
    }
    for estimator, loss in table("Estimator and loss"):
        if estimator in ESTIMATORS:
            pair = Choice(loss=chosen(LOSSES, loss), estimator=chosen(ESTIMATORS, estimator))
            made[f"{estimator}, {loss}"] = pair
    for estimator, correction in table("Estimator and correction"):
        if estimator in ESTIMATORS:
            pair = Choice(correction=chosen(CORRECTIONS, correction), estimator=chosen(ESTIMATORS, estimator))
            made[f"{estimator}, {correction}"] = pair
    bands = {"ratio": (0.7, 1.5), "binary_kl": (3e-4,), "tv": (0.01,)}
    for judged, mode in table("Correction `importance`"):
        level, gate = judged.split(", ")
        options = {"level": level, "gate": gate, "mode": mode, "threshold": bands[gate]}
        made[f"{judged}, {mode}"] = Choice(correction=chosen(CORRECTIONS, "importance", **options))
    for form, where in table("KL penalty"):
        name = where.partition("in the reward of ")[2].partition(",")[0]
        reference = where.rpartition(" ")[2]
        if name in ESTIMATORS:
            penalty = {"kl_coef": 0.1, "kl_form": form, "kl_reference": reference}
            pair = Choice(estimator=chosen(ESTIMATORS, name, **penalty))
        else:
            pair = Choice(loss=chosen(LOSSES, "ppo", kl_coef=0.1, kl_form=form, kl_reference=reference))
        made[f"{form} {where}"] = pair
    return made


CHOICES = choices()


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_takes_a_step(qwen3_folder: Path, teacher: Path, items: list[TrainItem], choice: Choice) -> None:
    with started(qwen3_folder, **settings(evolve(choice, other_reference=True), teacher)) as made:
        result = made.step(train_batch(items))
    assert result.applied
    assert all(math.isfinite(value) for value in result.metrics.values())
    assert result.metrics["policy/grad_norm"] > 0
