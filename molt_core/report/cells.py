"""Text measured in terminal cells: escaped, cut, never wider than asked. Pure."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """`text` on one line, with control characters written out, so that a model can't steer the terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
        for character in text
    )


def width(text: str) -> int:
    """Cells that a terminal gives to printable text: two for wide East Asian characters, none for accents."""
    return sum(map(_cells, text))


def cut(text: str, columns: int) -> str:
    """At most `columns` cells of `text`; what was cut off leaves `...`."""
    if width(text) <= columns:
        return text
    kept, left = "", columns - 3
    for character in text:
        left -= _cells(character)
        if left < 0:
            break
        kept += character
    return kept + "." * min(3, max(columns, 0))


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
