"""Writes docs/compatibility.md: which algorithms go together, asked of the rules themselves.

Each cell is one `molt check` of a run that differs from a sound one by the pair only; a cell that is refused names the
finding's code, and the notes below give its message and way out. Nothing is written by hand, so that the tables say
what the rules do. `tables()` is what the tests read.

    .venv/bin/python scripts/compatibility.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from attrs import frozen

from molt_core.api.findings import Finding
from molt_core.plan.check import examine
from molt_core.plugins.scan import scan

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"
SOUND: Final = ("--model", "tiny", "--env", "arithmetic", "--eval-prompts", "0", "--group-size", "8")
TEACHER: Final = ("--reference", "OWNER/TEACHER")
CRITIC: Final = ("--trainer.critic-lr", "1e-5")

ESTIMATORS: Final[dict[str, tuple[str, ...]]] = {
    "reinforce++": (), "reinforce++-baseline": (), "grpo": (), "dr_grpo": (), "rloo": (), "flash_reinforce": (),
    "gae": CRITIC, "on_policy_distill": TEACHER,
}  # fmt: skip
LOSSES: Final[dict[str, tuple[str, ...]]] = {"ppo": (), "gspo": (), "cispo": (), "topk_reverse_kl": TEACHER}
CORRECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "none": (), "importance": ("--correction", "importance"), "score-centering": ("--correction", "score-centering"),
}  # fmt: skip
REWARDS: Final = {"dynamic": "--filter", "varied": "--filter", "penalties": "--shaper"}
HEAD: Final = """\
# What goes together

Made by `scripts/compatibility.py` from the rules that `molt check` and `molt run` apply before anything starts. A test
compares each cell with them, and takes a step with each pair that is allowed. Where a cell names a code, the notes
below say why, and what to do instead.
"""
LEVELS: Final = ("token", "seq", "geo")
GATES: Final = {"ratio": ("0.5", "5"), "binary_kl": ("0.005",), "tv": ("0.1",)}
MODES: Final = ("mask", "clip", "trunc")
FORMS: Final = ("k1", "k2", "k3")


@frozen
class Cell:
    row: str
    column: str
    argv: tuple[str, ...]
    """Of a whole run that has the pair."""

    def refused_by(self) -> tuple[Finding, ...]:
        findings = examine([*SOUND, *self.argv], scan()).findings
        return tuple(finding for finding in findings if finding.level == "error")


@frozen
class Table:
    title: str
    says: str
    corner: str
    cells: tuple[Cell, ...]

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(cell.column for cell in self.cells))


def tables() -> tuple[Table, ...]:
    """All pairs, in the order of the document."""
    return (
        Table(
            "Loss and correction", "A correction makes the ratio one against the policy before the step.",
            "`--loss`",
            tuple(
                Cell(loss, f"`{correction}`" if correction != "none" else "no correction", (*_loss(loss), *flags))
                for loss in LOSSES for correction, flags in CORRECTIONS.items()
            ),
        ),
        Table(
            "Estimator and loss",
            "`topk_reverse_kl` learns from the teacher alone, so an estimator beside it must ask for nothing, as the\n"
            "default does, or for the teacher.",
            "`--estimator`",
            tuple(
                Cell(estimator, f"`{loss}`", (*_estimator(estimator), *_loss(loss)))
                for estimator in ESTIMATORS for loss in LOSSES
            ),
        ),
        Table(
            "Estimator and correction", "", "`--estimator`",
            tuple(
                Cell(estimator, f"`{name}`", (*_estimator(estimator), *flags))
                for estimator in ESTIMATORS for name, flags in CORRECTIONS.items() if name != "none"
            ),
        ),
        Table(
            "Estimator, filter and shaper", "", "`--estimator`",
            tuple(
                Cell(estimator, f"`{name}`", (*_estimator(estimator), flag, name))
                for estimator in ESTIMATORS for name, flag in REWARDS.items()
            ),
        ),
        Table(
            "Correction `importance`", "Level and gate say what is judged and by what, the mode what follows.",
            "level, gate",
            tuple(
                Cell(f"{level}, {gate}", f"`{mode}`", _importance(level, gate, mode))
                for level in LEVELS for gate in GATES for mode in MODES
            ),
        ),
        Table(
            "KL penalty", "In the loss or in the reward, against a frozen model or the policy that sampled.",
            "form",
            tuple(Cell(form, column, argv) for form in FORMS for column, argv in _kl(form)),
        ),
        Table(
            "One rollout for each prompt", "`--group-size 1`.", "choice",
            tuple(
                Cell(f"`{flag} {name}`", "one rollout", (flag, name, *more, "--group-size", "1"))
                for flag, names in (("--estimator", ESTIMATORS), ("--filter", {"dynamic": (), "varied": ()}))
                for name, more in names.items()
            ),
        ),
    )  # fmt: skip


def _loss(name: str) -> tuple[str, ...]:
    return ("--loss", name, *LOSSES[name])


def _estimator(name: str) -> tuple[str, ...]:
    return ("--estimator", name, *ESTIMATORS[name])


def _importance(level: str, gate: str, mode: str) -> tuple[str, ...]:
    threshold = [word for value in GATES[gate] for word in ("--correction.threshold", value)]
    choice = ("--correction", "importance", "--correction.level", level, "--correction.gate", gate)
    return (*choice, "--correction.mode", mode, *threshold)


def _kl(form: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for reference in ("model", "sampler"):
        flags = ("--loss.kl-coef", "0.1", "--loss.kl-form", form, "--loss.kl-reference", reference)
        yield f"in the loss, against the {reference}", flags
    for estimator, reference in product(("reinforce++", "gae"), ("model", "sampler")):
        flags = (
            "--estimator.kl-coef",
            "0.1",
            "--estimator.kl-form",
            form,
            "--estimator.kl-reference",
            reference,
        )
        yield f"in the reward of {estimator}, against the {reference}", (*_estimator(estimator), *flags)


def document() -> str:
    """The whole of docs/compatibility.md."""
    notes: dict[tuple[str, str], list[str]] = {}
    parts = [HEAD]
    for table in tables():
        refused = {(cell.row, cell.column): cell.refused_by() for cell in table.cells}
        for findings in refused.values():
            for finding in findings:
                notes.setdefault((finding.code, finding.fix), []).append(finding.message)
        lines = [" | ".join(["", table.corner, *table.columns, ""]).strip()]
        lines.append("|" + "---|" * (1 + len(table.columns)))
        for row in table.rows:
            cells = [_text(refused[row, column]) for column in table.columns]
            lines.append(" | ".join(["", row, *cells, ""]).strip())
        says = f"{table.says}\n\n" if table.says else ""
        parts.append(f"## {table.title}\n\n{says}" + "\n".join(lines) + "\n")
    parts.append("## Notes\n")
    for (code, fix), messages in sorted(notes.items()):
        one, several = sorted(messages)[0], "for example " if len(set(messages)) > 1 else ""
        parts.append(f"**{code}**: {several}{one}.\n*Way out:* {fix}.\n")
    return "\n".join(parts)


def _text(findings: Sequence[Finding]) -> str:
    return "no: " + ", ".join(sorted({finding.code for finding in findings})) if findings else "yes"


def main() -> int:
    DOCUMENT.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
