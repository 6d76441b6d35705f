"""A reward of math.toml. It gets the reply, and would get any column of the row that it had a parameter for."""

from __future__ import annotations

import re


def boxed(reply: str) -> float:
    """1 for exactly one \\boxed{}, so that the answer can be found."""
    return float(len(re.findall(r"\\boxed\{[^{}]+\}", reply)) == 1)
