"""Rewards of command.toml and mini_swe_agent.toml: they look at what the harness left in its workspace."""

from __future__ import annotations

from pathlib import Path


def wrote_answer(text: str, workspace: Path, answer: str) -> float:
    """1 when answer.txt holds the answer, a tenth when it is there at all."""
    file = workspace / "answer.txt"
    if not file.is_file():
        return 0.0
    return 1.0 if file.read_text(errors="replace").strip() == answer else 0.1
